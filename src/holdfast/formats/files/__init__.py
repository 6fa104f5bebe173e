"""Files of state: changelogs, snapshots, SST files, compression, checksums."""
