"""The formats of state files: changelogs, snapshots, SST files, compression and checksums."""
