"""The starter job of `holdfast init`: the templates of its files, and their writer."""
