"""What splicing saves of an edit's prefill: recorded runs sent again to a real vLLM server.

    python -m benchmarks.splice_speed [TRAJECTORIES] [--model smollm2] [--turns 16] [--runs 1]
        [--arms observation_mask plan_prune] [--keep-turns 4] [--output-chars 800]
        [--modes none prefix splice] [--count-only]

Needs .venv-vllm and the model (`make serve CPU=1`, containers/make_test_models.sh). Each view that
an arm would have sent over the first turns of a recording becomes a request for one token, so that
the time of an answer is that of its first token: without any reuse (`none`), with vLLM's prefix
cache (`prefix`), spliced (`splice`), in turn at every step. Long outputs are cut for every mode, so
that the window of a small model holds them. Processor seconds are of the server's processes;
`saved` is the share of the edits' prefill, which is what the prefix cache computes of text that was
sent before. `--count-only` asks no server: the same plans on the ids of Qwen's tokenizer, for whole
runs, with blocks of 32 tokens; nothing is timed.
"""

import argparse
import json
import os
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from pipeline.agent.encoded_view import encoded
from pipeline.host.proctable import all_processes
from pipeline.planning.config import sweep_spec
from pipeline.protocols import ChatRequest
from pipeline.replaying.replay import Replayer, ReplaySettings
from pipeline.serving.client import HttpCompleter
from pipeline.serving.splice.client import SplicedCompleter, SpliceRule
from pipeline.serving.splice.matching import planned_pieces
from pipeline.serving.tokens import QwenTokens
from pipeline.sessions.recordings import counter_named, recordings
from pipeline.views.shown import shown_content
from pipeline.views.walk import Growing, PlainView
from tests.system import splice_site

ROOT = Path(__file__).resolve().parents[1]
COUNTER = "chars/3.6"
BLOCK = 32
HEAD = "<|im_start|>assistant\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "trajectories", type=Path, nargs="?", default=ROOT.parent / "shared/data/trajectories"
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--arms", nargs="+", default=["observation_mask", "plan_prune"])
    parser.add_argument("--keep-turns", type=int, default=4)
    parser.add_argument("--output-chars", type=int, default=800)
    parser.add_argument("--modes", nargs="+", default=["none", "prefix", "splice"])
    parser.add_argument("--count-only", action="store_true")
    options = parser.parse_args()
    folder = options.trajectories
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.traj.json"))[: options.runs]
    if options.count_only:
        count_all(files, options)
        return
    spec = splice_site.model(options.model)
    with (
        tempfile.TemporaryDirectory() as folder,
        splice_site.served(spec, Path(folder)) as server,
    ):
        for name in options.arms:
            tally = defaultdict(lambda: defaultdict(float))
            for path in files:
                (recording,) = recordings(path, COUNTER)
                steps = list(views(cut(recording, options), arm(name, options), options))
                measure(spec, server, f"{name}.{path.stem}", steps, options.modes, tally)
            report(name, tally, options)


def count_all(files, options):
    options.model, options.modes = "Qwen's tokenizer", ["none", "prefix", "splice"]
    tokenizer = QwenTokens()
    for name in options.arms:
        tally = defaultdict(lambda: defaultdict(float))
        for path in files:
            (recording,) = recordings(path, COUNTER)
            steps = views(cut(recording, options), arm(name, options), options)
            last, shown = [], set()
            for messages in steps:
                ids = tokenizer._ids("".join(rendered(m) for m in messages) + HEAD)
                count(ids, last, tally)
                count_edit(len(ids), messages, shown, tally["edits"])
                last = ids
        report(name, tally, options)


def rendered(message):
    chat = json.loads(message)
    return f"<|im_start|>{chat['role']}\n{chat['content']}<|im_end|>\n"


def count(ids, last, tally):
    """Add what a prompt takes: its answer is not known, and not among what was sent."""
    plan = planned_pieces(last, ids)
    prefix = plan[0].n - plan[0].n % BLOCK
    moved = sum(piece.n for piece in plan[1:])
    computed = {
        "none": len(ids),
        "prefix": len(ids) - prefix,
        "splice": len(ids) - plan[0].n - moved,
    }
    for mode, n_tokens in computed.items():
        tally[mode]["prompt"] += len(ids)
        tally[mode]["computed"] += max(n_tokens, 1)
    tally["splice"]["rotated"] += moved


def count_edit(n_tokens, messages, shown, edits):
    """Add a step's text that no message showed before, by its share of the prompt's characters."""
    new = [text for place, text in enumerate(messages) if (place, text) not in shown]
    edits["new"] += n_tokens * sum(map(len, new)) / sum(map(len, messages))
    edits["steps"] += any((place, messages[place]) not in shown for place in {p for p, _ in shown})
    edits["calls"] += 1
    shown |= set(enumerate(messages))


def arm(name, options):
    words = ["+sweep=demo", f"+arm@arms.it={name}", "model=sim"]
    if name == "observation_mask":
        words.append(f"arms.it.policy.keep_last_turns={options.keep_turns}")
    return sweep_spec(words).arms["it"]


def cut(recording, options):
    """Return the recording with its first calls, and long texts cut in the middle."""
    calls = recording.calls[: options.turns]
    for message in recording.trajectory.messages:
        text, limit = message.content, options.output_chars
        if len(text) > limit:
            text = f"{text[: limit // 2]}\n[...]\n{text[-limit // 2 :]}"
            short = replace(message, content=text, n_tokens=counter_named(COUNTER).count(text))
            recording.trajectory.messages[message.index] = short
    return replace(recording, calls=calls)


def views(recording, arm, options):
    """Yield the messages of every step call, as plain chat that any template renders."""
    settings = ReplaySettings(cleanup_every=max(2, options.keep_turns))
    made = Replayer(recording, counter_named(COUNTER), settings).replay(arm).edits_by_step
    history = Growing(recording.trajectory)
    view = PlainView(trajectory=history.trajectory)
    for call, edits in zip(recording.calls, made, strict=True):
        history.grow_to(call.n_messages)
        view.apply(edits)
        yield [
            encoded({
                "role": "user" if message.role == "tool" else message.role,
                "content": shown_content(message, view.standing)
                + "".join(f"\n$ {call.arguments}" for call in message.tool_calls),
            })
            for message in history.trajectory.messages
        ]  # fmt: skip


def measure(spec, server, run, steps, modes, tally):
    plain = HttpCompleter(spec, server.base_url)
    rule = SpliceRule()
    spliced = SplicedCompleter(
        HttpCompleter(spec, server.base_url), server.base_url, spec.request_name, run=run, rule=rule
    )
    senders = {"none": plain, "prefix": plain, "splice": spliced}
    shown = set()
    for number, messages in enumerate(steps):
        for mode in modes:
            salt = f"{mode}.{run}" + (f".{number}" if mode == "none" else "")
            request = ChatRequest(
                messages=messages, seed=0, temperature=0.0, max_tokens=1, cache_salt=salt,
                extra={"structured_outputs": None, "seed": None},
            )  # fmt: skip
            before = cpu_s()
            reply = senders[mode].complete(request)
            row = tally[mode]
            row["cpu_s"] += cpu_s() - before
            row["first_token_s"] += reply.latency_s
            row["prompt"] += reply.prompt_tokens
            row["computed"] += reply.prompt_tokens - (reply.cached_tokens or 0)
            row["rotated"] += reply.rotated_tokens or 0
        count_edit(reply.prompt_tokens, messages, shown, tally["edits"])
    spliced.close()


def cpu_s():
    """Return the processor seconds of the server's processes: all that are below this one."""
    tree, ticks = {os.getpid()}, 0
    processes = all_processes()
    for _ in range(4):
        tree |= {p.pid for p in processes if p.ppid in tree}
    for pid in tree - {os.getpid()}:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def report(name, tally, options):
    edits = tally.pop("edits")
    print(
        f"\n{name}, {options.model}: {edits['calls']:.0f} calls, {edits['steps']:.0f} with an edit;"
        f" {edits['new']:.0f} prompt tokens never sent before"
    )
    print("| | prompt tokens | computed | rotated | to first token, s | server, CPU s | saved |")
    print("|---|---|---|---|---|---|---|")
    base = tally["prefix"]["computed"]
    wasted = base - edits["new"]
    for mode in options.modes:
        row = tally[mode]
        saved = f"{(base - row['computed']) / wasted:.0%}" if wasted else ""
        counts = " | ".join(f"{row[key]:.0f}" for key in ("prompt", "computed", "rotated"))
        times = "| " if options.count_only else f"{row['first_token_s']:.1f} | {row['cpu_s']:.1f}"
        print(f"| {mode} | {counts} | {times} | {saved} |", flush=True)


if __name__ == "__main__":
    main()
