"""The matrices that a model is made of, by the config: what a quantiser sees."""
