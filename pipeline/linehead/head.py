"""The head: from hidden states of an output's tokens to the odds that each is kept (METHODS 3)."""

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
            columns = [
                torch.sigmoid(self.layers(states + row).squeeze(-1)) for row in self.lengths.weight
            ]
            return torch.stack(columns, dim=1)

    @property
    def n_parameters(self) -> int:
        """How many numbers training fits."""
        return sum(p.numel() for p in self.parameters())
