"""Published heads: nine tensors under other names, read without running code."""

import json

from tests.linehead.extra import need_torch

need_torch()

import pytest  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from pipeline.linehead.__main__ import main  # noqa: E402
from pipeline.linehead.checkpoint import load_head  # noqa: E402
from pipeline.linehead.published import run_import_job  # noqa: E402
from pipeline.linehead.settings import ImportJob  # noqa: E402

WIDTH = 6


class PublishedHead(nn.Module):
    """The published module as METHODS describes it: names and layers of its checkpoint."""

    def __init__(self):
        super().__init__()
        self.compression_head = nn.Sequential(
            nn.LayerNorm(WIDTH),
            *(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.4)),
            *(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.4)),
            nn.Linear(WIDTH, 1),
        )
        self.size_embedding = nn.Embedding(8, WIDTH)

    def forward(self, hidden, n_lines):
        edges = torch.tensor((2, 5, 10, 20, 50, 100, 200))
        bucket = (n_lines > edges).sum()
        return self.compression_head(hidden + self.size_embedding(bucket)).squeeze(-1)


@pytest.fixture
def published(tmp_path):
    torch.manual_seed(1)
    module = PublishedHead().eval()
    folder = tmp_path / "published"
    folder.mkdir()
    backbone = {"backbone.embed.weight": torch.zeros(2, 2)}
    torch.save({**module.state_dict(), **backbone}, folder / "best_model.pt")
    (folder / "model_config.json").write_text(json.dumps({"dropout": 0.4, "use_size_emb": True}))
    return module, folder


def test_an_imported_head_scores_as_the_published_one_at_every_length(published, tmp_path):
    from pipeline.linehead.lengths import length_bucket

    module, folder = published
    run_import_job(ImportJob(source=str(folder), backbone="Q/coder", out=str(tmp_path / "head")))
    trained = load_head(tmp_path / "head")
    assert trained.card["backbone"] == "Q/coder"
    hidden = torch.randn(4, WIDTH)
    for n_lines in (1, 2, 3, 5, 6, 20, 21, 100, 200, 201):
        ours = trained.head(hidden, torch.tensor(length_bucket(n_lines)))
        torch.testing.assert_close(ours, module(hidden, n_lines))


def test_the_command_imports_and_names_what_is_missing(published, tmp_path, capsys):
    _, folder = published
    words = ["import", f"source={folder}", "backbone=Q/coder", f"out={tmp_path / 'head'}"]
    assert main(words) == 0
    assert "head of Q/coder, hidden size 6, with a length embedding" in capsys.readouterr().out
    (folder / "model_config.json").unlink()
    assert main(words) == 1
    assert "has no model_config.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: {"other.weight": s["compression_head.0.weight"]}, "no published head"),
        (lambda s: {**s, "size_embedding.weight": torch.zeros(4, WIDTH)}, "4 length buckets"),
        (lambda s: {**s, "compression_head.4.weight": torch.zeros(2, 2)}, "another kind of head"),
    ],
)
def test_another_kind_of_checkpoint_is_refused(published, tmp_path, change, said):
    module, folder = published
    torch.save(change(module.state_dict()), folder / "best_model.pt")
    job = ImportJob(source=str(folder), backbone="Q/coder", out=str(tmp_path / "head"))
    with pytest.raises(ValueError, match=said):
        run_import_job(job)


class Trap:
    """Runs a command when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        import os

        return (os.system, (f"touch {self.target}",))


def test_a_checkpoint_cannot_run_code(published, tmp_path):
    _, folder = published
    torch.save({"compression_head.0.weight": Trap(tmp_path / "ran")}, folder / "best_model.pt")
    job = ImportJob(source=str(folder), backbone="Q/coder", out=str(tmp_path / "head"))
    with pytest.raises(ValueError, match="holds more than weights"):
        run_import_job(job)
    assert not (tmp_path / "ran").exists()
