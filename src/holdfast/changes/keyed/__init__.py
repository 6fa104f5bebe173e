"""The writing of key groups of keyed operators at rest.

`group_changes` changes some keys of a group, `group_builder` builds all groups from tables, and `regrouping`
changes the number of groups. `group_blobs` creates their blobs, `store_rows` creates the rows of Spark's
store that contain them, and `group_writer` writes these rows into a checkpoint.
"""
