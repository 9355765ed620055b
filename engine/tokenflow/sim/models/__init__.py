"""Performance models of GPUs that are not here: one fitted file for each GPU and model. See docs/simulate.md.

`load_model(gpu, model)` reads one, `known_models()` lists them; `fit_formula` makes one from measured steps.
"""

from tokenflow.sim.models.load import known_models, load_model

__all__ = ["known_models", "load_model"]
