"""Our connector with loads that fail every other time: loaded by vLLM in tests."""

from pipeline.serving.splice import connector


class FailingSpliceConnector(connector.SpliceConnector):
    """Fails half of its loads, after having written some layers."""

    n_loads = 0

    def _load(self, load, cache):
        self.n_loads += 1
        n_tokens = super()._load(load, cache)
        if self.n_loads % 2:
            for layer in cache.caches:
                layer[load.blocks[load.start // cache.block_size]] = 7.0
            raise RuntimeError("a load that fails, as the test wants it")
        return n_tokens
