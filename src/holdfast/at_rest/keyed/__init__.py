"""Holdfast's own keyed state at rest: read, changed, made and regrouped by the keys of its users.

`keyed_operators` lists the keyed operators of a checkpoint, `keyed_reader` reads their keys, `group_changes`
changes some of the keys of a group, `group_builder` builds all groups from tables, `regrouping` changes their
number. `group_blobs` writes their blobs, `store_rows` has the rows of the store that hold them, and
`group_writer` puts these back into a checkpoint.
"""
