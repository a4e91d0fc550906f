"""Reading what the user points at: names, folders, config.json, headers. All I/O of an audit."""
