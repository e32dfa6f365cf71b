"""Which model a folder of weights is, and whether a head belongs to it."""

from pipeline.linehead.backbone_name import BackboneName, backbone_name
from pipeline.serving.staged import Manifest, write_manifest


def test_staged_weights_are_known_by_their_manifest_others_by_their_folder(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    assert backbone_name(str(folder)) == BackboneName(repo="weights")
    write_manifest(folder, Manifest(source="x", repo="Qwen/Qwen3-8B", revision="c0ffee"))
    assert backbone_name(str(folder)) == BackboneName(repo="Qwen/Qwen3-8B", revision="c0ffee")
    assert backbone_name(str(folder), "told").revision == "told"
    assert backbone_name("Qwen/Qwen3-8B", "main") == BackboneName(
        repo="Qwen/Qwen3-8B", revision="main"
    )


def test_only_known_revisions_can_differ():
    known = BackboneName(repo="Qwen/Qwen3-8B", revision="a")
    assert known.may_be(BackboneName(repo="models/qwen3-8b"))
    assert known.may_be(known)
    assert not known.may_be(BackboneName(repo="Qwen/Qwen3-8B", revision="b"))
    assert not known.may_be(BackboneName(repo="Qwen/Qwen3-14B", revision="a"))
