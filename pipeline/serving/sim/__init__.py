"""The simulated agent behind a real OpenAI-compatible HTTP server.

It is a simulation, not a model: it follows recipes for known instances, but takes everything
it acts on from the request's messages. What it needs and no longer sees, it reads again, so that
arms which hide outputs differ here as they do in life. It owns no experiment: it knows neither
arms nor runs, and imports nothing of the pipeline above it.
"""

from pipeline.serving.sim.config import SimConfig
from pipeline.serving.sim.server import SimHandle, serve

__all__ = ["SimConfig", "SimHandle", "serve"]
