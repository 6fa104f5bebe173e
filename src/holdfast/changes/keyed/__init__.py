"""Key groups of Holdfast's keyed operators, written at rest.

`group_changes` changes some keys of a group, `group_builder` builds all groups from tables, `regrouping`
changes their number. `group_blobs` writes their blobs, `store_rows` has the rows of the store that hold them,
and `group_writer` writes these into a checkpoint.
"""
