"""The model that transformers builds of a config, without values: what an audit is held against."""
