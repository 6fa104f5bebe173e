"""Holdfast's own keyed state at rest: read, changed, made and regrouped by the keys of its users.

`keyed_operators` says which keyed operators a checkpoint has, `keyed_reader` gives their keys,
`group_changes` makes key groups in which some keys are others, `group_builder` all of them out of tables,
`regrouping` as many of them as are wanted; `group_tables` is where they come from, `group_blobs` how they are
made anew, `store_rows` are the rows of the store that hold them, and `group_writer` puts these back into a
checkpoint.
"""
