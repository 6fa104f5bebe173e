"""`holdfast completion`: completion scripts for shells, and the completions that they request.

The scripts run `holdfast` with the line typed so far. Click finds the parameter at the cursor, and
`candidates` finds its completions. Errors are not printed: a request that fails has no completions.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from contextlib import redirect_stderr, suppress
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli import options, output
from holdfast.cli.help_text import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.cli.candidates import Completion

# The environment variables of a request: the shell, the line up to the cursor, and the part of the word that
# the shell will replace.
ASKING: Final = "_HOLDFAST_COMPLETE"
_LINE: Final = "COMP_LINE"
_WORD: Final = "COMP_WORD"
# A character that no typed line contains.
_CURSOR: Final = "\0"
_SPECIAL: Final = re.compile(r"[^\w~@%+=:,./-]")


class Shell(str, Enum):
    """A supported shell."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_BASH: Final = r"""# bash completion of holdfast, printed by `holdfast completion bash`
_holdfast_completion() {
    local kind value help
    COMPREPLY=()
    while IFS=$'\t' read -r kind value help; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            # Names of files: bash quotes them, and puts a slash behind directories.
            dir) compopt -o filenames -o plusdirs ;;
            file) compopt -o filenames -o default ;;
        esac
    done < <(
        _HOLDFAST_COMPLETE=bash COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" \
            command "${1/#\~\//$HOME/}" 2>/dev/null
    )
}
# Before 4.4 bash sorts all by itself.
complete -o nosort -F _holdfast_completion holdfast 2>/dev/null || complete -F _holdfast_completion holdfast
"""

_ZSH: Final = r"""#compdef holdfast
# zsh completion of holdfast, printed by `holdfast completion zsh`
_holdfast() {
    local kind value help line="${(j: :)words[1,CURRENT-1]} $IPREFIX$QIPREFIX$PREFIX"
    local -a described
    local -i directories=0 files=0
    [[ $PREFIX == -*=* ]] && compset -P 1 '*='
    while IFS=$'\t' read -r kind value help; do
        case $kind in
            plain) described+=("${value//:/\\:}${help:+:$help}") ;;
            dir) directories=1 ;;
            file) files=1 ;;
        esac
    done < <(
        _HOLDFAST_COMPLETE=zsh COMP_LINE=$line COMP_WORD=${PREFIX##*/} command ${~words[1]} 2>/dev/null
    )
    (( directories )) && _files -/
    (( files )) && _files
    # Up to the last slash the word stays as it is typed, its ~ included.
    compset -P '*/'
    (( $#described )) && _describe -V holdfast described
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
"""

_FISH: Final = r"""# fish completion of holdfast, printed by `holdfast completion fish`
function __holdfast_complete
    set -l program (commandline -opc)[1]
    set -l word (commandline -ct)
    # Of --home=DIR the shell's own directories fit what is behind the sign.
    set -l option (string match -r -- '^-[^=]*=' $word; or echo)
    set -l path (string replace -r -- '^-[^=]*=' '' $word)
    env _HOLDFAST_COMPLETE=fish COMP_LINE=(commandline -cp | string collect) $program 2>/dev/null |
    while read -l -d \t kind value help
        switch $kind
            case plain
                printf '%s\t%s\n' $value $help
            case dir
                printf '%s\n' $option(__fish_complete_directories $path)
            case file
                printf '%s\n' $option(__fish_complete_path $path)
        end
    end
end
complete --command holdfast --no-files --keep-order --arguments '(__holdfast_complete)'
"""

SCRIPTS: Final = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


@examples("bash", "fish")
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
    json: options.Json = False,
) -> None:
    """Print a shell script that completes commands, options, jobs, savepoints, labels and states.

    Add one line to the startup file of your shell:

    \b
      ~/.bashrc                    source <(holdfast completion bash)
      ~/.zshrc, after compinit     source <(holdfast completion zsh)
      ~/.config/fish/config.fish   holdfast completion fish | source

    Or write the script to a directory that the shell searches, so that new shells start faster:

    \b
    Examples:
      holdfast completion zsh > ~/.zfunc/_holdfast   # a directory of fpath
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """  # noqa: D301 - the sign for lines that the help does not wrap
    script = SCRIPTS[shell]
    if json:
        output.emit_json({"shell": shell.value, "script": script})
    else:
        output.line(script.rstrip("\n"))


def answer(verbs: Any) -> None:
    """Print the completions, one per line: type, word and description, separated by tabs.

    Args:
        verbs: Click's group of all verbs.
    """
    with suppress(Exception), redirect_stderr(io.StringIO()):
        line = os.environ.get(_LINE, "")
        words, bare = _split(f"{line}{_CURSOR}")
        word = words[-1].removesuffix(_CURSOR)
        found = completions(verbs, words[1:-1], word)
        # A shell may replace only a part of the word: bash splits `sp@before` and `--to=sp`.
        drop = len(word) - len(_ending(word, os.environ.get(_WORD, word)))
        # Bash inserts candidates that are not file names unescaped.
        escaped = (
            os.environ[ASKING] == Shell.BASH.value and bare and all(one.type == "plain" for one in found)
        )
        sys.stdout.write("".join(_printed(one, drop, escaped=escaped) for one in found))
        sys.stdout.flush()


def completions(verbs: Any, before: Sequence[str], word: str) -> list[Completion]:
    """Return the completions of a word.

    Args:
        verbs: Click's group of all verbs.
        before: The words before the completed one, without the program's name.
        word: The part of the word typed so far.
    """
    from typer._completion_classes import BashComplete

    from holdfast.cli.candidates import FREE, Completion, candidates

    def complete(context: Any, parameter: Any, begun: str) -> list[Completion]:
        return candidates(_with_values(context, parameter, before), parameter, begun)

    for parameter in _parameters(verbs):
        if parameter.metavar is not None and parameter.metavar not in FREE:
            # The attribute that Typer sets for `autocompletion=`, which has no file completion.
            parameter._custom_shell_complete = complete
    shell = BashComplete(verbs, {}, "holdfast", ASKING)
    option, equals, _ = word.partition("=")
    prefix = f"{option}=" if equals and word.startswith("-") else ""
    return [
        Completion(f"{prefix}{found.value}" if found.type == "plain" else "", found.help or "", found.type)
        for found in shell.get_completions(list(before), word)
    ]


def _with_values(context: Any, parameter: Any, before: Sequence[str]) -> Any:
    """Return a context with all values typed so far; Click reads none if the last option lacks its value."""
    if not before or before[-1] not in parameter.opts:
        return context
    groups = 0
    above = context.parent
    while above is not None:
        groups, above = groups + 1, above.parent
    words = list(before[groups:-1])
    return context.command.make_context(context.info_name, words, context.parent, resilient_parsing=True)


def _parameters(verbs: Any) -> Iterator[Any]:
    for verb in getattr(verbs, "commands", {}).values():
        yield from _parameters(verb) if hasattr(verb, "commands") else verb.params


def _split(line: str) -> tuple[list[str], bool]:
    """Split a line as a shell does; the second result is False if the last word has an open quote."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words += lexer
    except ValueError:  # an unclosed quote
        return [*words, lexer.token], False
    return words, True


def _ending(word: str, theirs: str) -> str:
    """Return the part of a word that the shell will replace, without its quotes."""
    return theirs if word.endswith(theirs) else _split(theirs)[0][-1]


def _printed(candidate: Completion, drop: int, *, escaped: bool) -> str:
    value = candidate.value[drop:] if candidate.type == "plain" else ""
    if escaped:
        value = _SPECIAL.sub(r"\\\g<0>", value)
    fields = (candidate.type, value, " ".join(candidate.help.split()))
    return "\t".join(fields) + "\n" if all(map(str.isprintable, fields)) else ""
