"""The head inside vLLM: scores in the same chat response, without a second forward pass.

Installed into vLLM's own environment with `--no-deps`. A `vllm.general_plugins` entry point
(`plugin`) offers every architecture once more with a head on it (`backbones`, `scorer`); a
connector (`connector`) brings the scores of an output back to the request that asked. Only
`connector`, `plugin` and `backbones` import vLLM; the worker's side of the protocol is in
`pipeline.views.line_scores` and knows neither.
"""
