"""The general latent models, one file each. A file here is found by the registry: nothing else names it."""
