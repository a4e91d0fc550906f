"""How much each query head matters: to the loss on a text, or by its weights alone."""
