"""Keys and values of text behind an edit, used again at their new place: docs/splice.md.

`connector` is loaded by vLLM in its own environment (no planprune dependency but PyTorch, which
vLLM brings); what it decides is in `index`, which is pure. `client` is our side: it plans what
moves (`matching`) and computes new text between moved text by requests of one token. Only
`connector` imports vLLM; only `connector` and `keys` import PyTorch.
"""
