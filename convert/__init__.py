"""The heavy half: plan, stream, verify and evaluate a conversion. Needs the `convert` extra.

Importing it makes transformers know the classes of models that a conversion laid a modelling file
beside, so that they load without trust_remote_code.
"""

from .models.on_import import know_our_types

know_our_types()
