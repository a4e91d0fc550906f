"""What test_every_type leaves out of a comparison, with the reason for each."""

# Prefilled only.
NOT_STEPWISE = {
    "prophetnet": "its decoder counts positions by an attention mask that it does not make",
}
