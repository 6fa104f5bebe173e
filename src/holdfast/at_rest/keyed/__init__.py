"""Holdfast's own keyed state at rest: read, changed, made and regrouped by the keys of its users.

`operators` says which keyed operators a checkpoint has, `reading` gives their keys, `changing` makes key
groups in which some keys are others, `making` all of them out of tables, `regrouping` as many of them as are
wanted; `groups` is where they come from, `blobs` how they are written, and `store_rows` are the rows of the
store that hold them.
"""
