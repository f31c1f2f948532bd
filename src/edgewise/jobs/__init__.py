"""Jobs: long work in shards that survives being killed. The command line's `--out` is one; see `shard_run.py` first."""
