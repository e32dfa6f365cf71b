"""A run without anything that anybody wrote: sizes, times and tools, to be shown to others."""

from dataclasses import replace

from pipeline.records.foreign.instances import wordless
from pipeline.records.run_record import RunRecord
from pipeline.spec.run import slugged
from pipeline.views.trajectory import Edit, Message


def without_texts(record: RunRecord) -> RunRecord:
    """Return a run with sizes, times and tools, and nothing that anybody wrote.

    Placeholders of edits stay out too: they may quote what they stand for.
    """
    words, named = slugged(record.instance_id), wordless(record.instance_id)
    return replace(
        record,
        instance_id=named,
        repo=wordless(record.repo),
        node="",
        run_id=record.run_id.replace(words, named),
        block_id=record.block_id.replace(words, named),
        failure=None,
        patch="",
        limit_patch=None,
        extra={},
        messages=tuple(map(_without_text, record.messages)),
        plan_events=tuple(replace(event, title="", outcome="") for event in record.plan_events),
        decisions=tuple(replace(d, content="", tool_calls=()) for d in record.decisions),
        calls=tuple(
            replace(
                call,
                edits=tuple(map(_without_insertion, call.edits)),
                transient=tuple(map(_without_insertion, call.transient)),
                messages=None,
                error=None if call.error is None else "not kept",
                reply=None if call.reply is None else "",
                reply_reasoning=None,
                reply_tool_calls=(),
                ignored_ids=None,
                server_answer=None,
                pruner_answer=None,
                tool_choice=None,
            )
            for call in record.calls
        ),
        tools={},
    )


def _without_text(message: Message) -> Message:
    return replace(
        message,
        content="",
        reasoning=None,
        command=None,
        output=None,
        output_start=None,
        tool_calls=tuple(replace(call, arguments="{}") for call in message.tool_calls),
    )


def _without_insertion(edit: Edit) -> Edit:
    return replace(edit, text="")
