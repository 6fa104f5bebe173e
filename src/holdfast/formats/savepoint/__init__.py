"""The files of a savepoint: manifest, content, labels."""
