"""How much of a cache's bytes each layer gets: by what its fewer heads or smaller latent cost."""
