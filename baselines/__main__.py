"""florilegium COMMAND ...: this project's commands under one name.

    florilegium run strategy=fedexp dataset=mnist model=lenet
    florilegium compare multirun/mine
    florilegium run --help

    eval "$(florilegium completion)"        # in bash: Tab completes commands, groups and options

Tab then completes ``python -m baselines.run``, too. ``florilegium COMMAND`` does what
``python -m baselines.COMMAND`` does, from any folder; so does ``python -m baselines COMMAND``.
Exit status: the command's; 2 for one that does not exist.
"""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

COMMANDS = {
    "run": ("baselines.run", "one experiment, or a sweep of many"),
    "compare": ("baselines.compare", "the runs of a sweep as tables and a figure"),
    "new": ("baselines.new", "the files of a method of your own, to begin with"),
    "inspect": ("baselines.inspect", "a partition or a model, before training"),
    "predict": ("baselines.predict", "what a saved model says of a folder or a table"),
    "reproduce": (
        "baselines.reproduce.__main__",
        "the missing runs of a paper's table, ours beside it",
    ),
    "federation": (
        "baselines.federation.__main__",
        "sites with data of their own: schema, submit, ...",
    ),
    "bench": ("baselines.bench.__main__", "how long rounds take"),
}

COMPLETION = """_florilegium_complete() {  # POSITION of the command, PREFIX of its name, what starts it
    local at="$1" prefix="$2" choices="" line="${COMP_LINE:0:COMP_POINT}" name
    shift 2
    if [ "$COMP_CWORD" -eq "$at" ]; then
        for name in COMMANDS; do choices+=" $prefix$name"; done
    elif [ "${COMP_WORDS[at]}" = "${prefix}run" ] || [ "${COMP_WORDS[at]}" = "${prefix}inspect" ]; then
        line="florilegium${line#* ${COMP_WORDS[at]}}"
        choices=$(COMP_LINE="$line" COMP_POINT=${#line} "$@" "${prefix}run" -sc query=bash 2>/dev/null)
    fi
    local word="${line##* }"
    COMPREPLY=($(compgen -o default -W "$choices" -- "$word"))
    # Bash takes = and : for the ends of words, and replaces what comes after them alone.
    local before="${word%"${word##*[=:]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
_florilegium() {
    _florilegium_complete 1 "" florilegium
}
_florilegium_python() {
    COMPREPLY=()
    [ "${COMP_WORDS[1]}" = -m ] || return  # files, as for any other command
    _florilegium_complete 2 baselines. "${COMP_WORDS[0]/#~/$HOME}" -m
}
complete -o nospace -o default -F _florilegium florilegium
complete -o nospace -o default -F _florilegium_python python python3"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the command line begins with; return its exit status."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("", "-h", "--help"):
        width = max(map(len, COMMANDS))
        listed = "\n".join(
            f"    {command:{width}}  {meaning}" for command, (_, meaning) in COMMANDS.items()
        )
        print(f"{__doc__}\n{listed}")
        return 0 if name else 2
    if name == "completion":
        print(COMPLETION.replace("COMMANDS", " ".join(COMMANDS)))
        return 0
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(COMMANDS)}"
        print(f"error: florilegium {name}: no such command; {hint}", file=sys.stderr)
        return 2
    module = import_module(COMMANDS[name][0])
    sys.argv = [f"florilegium {name}", *rest]
    status: int = module.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
