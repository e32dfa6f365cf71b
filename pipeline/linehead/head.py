"""The head: from hidden states of an output's tokens to the odds that each is kept.

See docs/methods.md, SWE-Pruner Pro.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from pipeline.linehead.lengths import N_BUCKETS


class LineHead(nn.Module):  # type: ignore[misc]  # torch is an extra, so mypy sees Any
    """A small network on a backbone's last hidden states, after its final norm; always fp32."""

    def __init__(
        self, hidden_size: int, *, dropout: float = 0.4, length_embedding: bool = True
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.lengths: nn.Embedding | None = None
        if length_embedding:
            self.lengths = nn.Embedding(N_BUCKETS, hidden_size)
            # Zero at the start: length says nothing until training finds that it does.
            nn.init.zeros_(self.lengths.weight)
        self.layers = nn.Sequential(
            nn.LayerNorm(hidden_size),
            nn.Linear(hidden_size, hidden_size),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size, hidden_size),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size, 1),
        )

    def forward(self, hidden: Tensor, buckets: Tensor) -> Tensor:
        """Return one logit a token.

        Args:
            hidden: shape (tokens, hidden size), any floating type.
            buckets: shape (tokens,) or (): the length bucket of the output a token is of.
        """
        states = hidden.float()
        if self.lengths is not None:
            states = states + self.lengths(buckets)
        logits: Tensor = self.layers(states).squeeze(-1)
        return logits

    def scores_by_bucket(self, hidden: Tensor) -> Tensor:
        """Return the keep probabilities for every bucket, shape (tokens, buckets).

        In a server a token's bucket is not known when its state is: this scores it for all of
        them. Without a length embedding there is one column.
        """
        with torch.inference_mode():
            states = hidden.float()
            if self.lengths is None:
                return torch.sigmoid(self.layers(states))
            rest = self.layers[2:]
            columns = [torch.sigmoid(rest(first).squeeze(-1)) for first in self._firsts(states)]
            return torch.stack(columns, dim=1)

    def _firsts(self, states: Tensor) -> Iterator[Tensor]:
        """Yield the first linear layer's output for every bucket, with one product over the states.

        A bucket adds a constant row before the norm. What the norm subtracts and divides by follows
        from the centred states and rows, so that the product with the weights is shared:
        W norm(x) = (W g) (x - mean) / spread + W b.
        """
        norm, linear = self.layers[0], self.layers[1]
        rows = self.lengths.weight if self.lengths is not None else states[:0]
        centred = states - states.mean(dim=-1, keepdim=True)
        centred_rows = rows - rows.mean(dim=-1, keepdim=True)
        weight = linear.weight * norm.weight
        constant = linear.weight @ norm.bias + linear.bias
        of_states, of_rows = centred @ weight.T, centred_rows @ weight.T
        size = states.shape[-1]
        variance = centred.square().mean(dim=-1, keepdim=True)
        for row, centred_row in zip(of_rows, centred_rows, strict=True):
            covariance = (centred @ centred_row / size).unsqueeze(-1)
            spread = variance + 2 * covariance + centred_row.square().mean()
            yield (of_states + row) / torch.sqrt(spread.clamp(min=0) + norm.eps) + constant

    @property
    def n_parameters(self) -> int:
        """How many numbers training fits."""
        return sum(p.numel() for p in self.parameters())
