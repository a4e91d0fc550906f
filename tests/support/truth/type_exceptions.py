"""What test_every_type leaves out of a comparison, with the reason for each."""

# Prefilled only.
NOT_STEPWISE = {
    "prophetnet": "its decoder counts positions by an attention mask that it does not make",
}

# Types beside the mappings of language models whose class these tests cannot run.
NOT_RUN = {
    "pop2piano": "no model of it alone: its class reads spectrograms",
    "speecht5": "its decoder reads spectrograms, not tokens",
}

# Models of the catalogue whose files do not say what their class builds.
OWN_KEYS = {
    "Zyphra/Zamba2-7B": "its file has Zyphra's own key names, which the class does not read: it "
    "builds a number of heads that it cannot run with the width of a head that the file gives",
}
