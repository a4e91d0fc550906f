"""Keys and values of a layer rebuilt from one latent of each token, which is all that is cached."""
