"""The entry point: commands, exit codes, and errors as one line."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from .commands import COMMANDS
from .options import Parser, Refusal, add_rows, check_names, settings

__all__ = ["main", "run_as_program"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; default those of the process.

    Returns
    -------
    int
        0: done. 1: the computation says no (a negative cycle, no path between the two nodes).
        2: wrong use, bad input, or too large for the memory. 141: the reader of the output closed
        it. 130, 143, 129: ended by Ctrl-C, SIGTERM or SIGHUP, with temporary files removed.

    Examples
    --------
    >>> main(["apsp", "absent.gr"])
    2
    """
    arguments = sys.argv[1:] if argv is None else argv
    return run_as_program(lambda: _main(arguments), process=argv is None)


def _main(arguments: Sequence[str]) -> int:
    if program := _IN_A_CHECKOUT.get(next(iter(arguments), "")):
        raise Refusal(
            f"{arguments[0]} is not part of the installed program: run {program} in a checkout of "
            f"the repository"
        )
    args = _parser(arguments).parse_args(arguments)
    command = COMMANDS[args.command]
    command.check(args)
    check_names(args, command.outputs)
    with settings(args), contextlib.ExitStack() as stack:
        return command.run(args, stack)


def run_as_program(run: Callable[[], int], *, process: bool) -> int:
    """Call a function as the body of a command-line program, and return the exit code.

    The function returns it where there is no error. Errors are printed as one line; signals end it
    after temporary files are removed. `process`: the process ends with it.
    """
    with _output_of_any_encoding(), _ended_by_signals(process=process):
        return _guarded(run)


def _guarded(run: Callable[[], int]) -> int:
    try:
        try:
            code = run()
        finally:
            # Here, where a closed pipe is still caught, and not when the interpreter ends.
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is still buffered would raise again when the interpreter ends.
        with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as end:
        number = end.number if isinstance(end, _Ended) else int(signal.SIGINT)
        word = "interrupted" if number == signal.SIGINT else f"ended by {_name(number)}"
        return _say(": ".join([word, *getattr(end, "__notes__", ())]), 128 + number)
    except Refusal as refusal:
        return _say(f"error: {refusal}", refusal.code)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _say(f"error: {what}", 2)
    except (
        ValueError, TypeError, MemoryError, ImportError, AssertionError, RuntimeError,
    ) as error:  # fmt: skip
        return _say(f"error: {str(error) or type(error).__name__}", 2)


@contextlib.contextmanager
def _output_of_any_encoding() -> Iterator[None]:
    """Print "?" for a character that standard output cannot encode; data are checked before."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    errors = stream.errors
    stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # closed
            stream.reconfigure(errors=errors)


class _Ended(KeyboardInterrupt):
    """A signal that ends the process, for all that cleans up after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def _ended_by_signals(*, process: bool) -> Iterator[None]:
    """Raise :class:`_Ended` at the first signal; a second one leaves the cleaning up alone.

    Job schedulers send SIGTERM more than once, some seconds before SIGKILL. Where the process ends
    with the block, it keeps its exit code whatever comes until then. Where Python drops the
    exception, as in a callback while garbage is collected, the signal is sent again. It is not
    raised amid the code of locks, which would stay locked, but where that returns to.
    """
    seen: list[int] = []

    def dropped(at: sys.UnraisableHookArgs) -> None:
        # of others nothing is told: half-made objects would complain when they are collected
        if isinstance(at.exc_value, _Ended):
            seen.clear()
            send: Callable[[int], None] = signal.raise_signal  # on Windows
            if hasattr(signal, "pthread_kill"):  # it interrupts what the main thread waits for
                send = functools.partial(signal.pthread_kill, threading.main_thread().ident or 0)
            again = threading.Timer(0.01, send, [at.exc_value.number])
            again.daemon = True
            again.start()

    def ended(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) == 1:
            if process:
                sys.unraisablehook = dropped
            outside = _outside_of_locks(frame)
            if outside is frame or outside is None or sys.gettrace() is not None:
                raise _Ended(number)

            def raised(*_: object) -> NoReturn:
                sys.settrace(None)
                raise _Ended(number)

            outside.f_trace = raised  # at its next line, or when it returns
            sys.settrace(lambda *_: None)
            return
        if len(seen) > 2:
            os._exit(128 + number)
        text = f"semiring-mm: {_name(number)}: still ending; a third signal ends it at once\n"
        os.write(2, text.encode())

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            default = (signal.SIG_DFL, signal.default_int_handler)
            if number is not None and signal.getsignal(number) in default:  # nohup ignores it
                before[number] = signal.signal(number, ended)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if seen and process else handler)


def _outside_of_locks(frame: FrameType | None) -> FrameType | None:
    """The innermost caller that is no code of locks; the frame itself where that only waits."""
    if frame is not None and frame.f_code.co_name in _WAITS:
        return frame
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _LOCKS:
        frame = frame.f_back
    return frame


_LOCKS = ("threading", "concurrent", "queue")  # modules in which a lock may have been taken
_WAITS = ("wait", "_wait_for_tstate_lock", "join")  # their functions that give theirs back


def _name(number: int) -> str:
    return signal.Signals(number).name


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print("semiring-mm:", " ".join(message.split()), file=sys.stderr)
    return code


def _parser(arguments: Sequence[str] = ()) -> Parser:
    """The parser, which knows the command and long options among these arguments."""
    parser = Parser(
        prog="semiring-mm",
        description="All-pairs shortest paths, and other best paths, of a graph in a file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, row in COMMANDS.items():
        command = commands.add_parser(
            name, allow_abbrev=False, help=row.summary, description=row.description or None
        )
        command.set_defaults(semiring=None)  # where there is no such option, that of the graph
        add_rows(command, row.options)
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what a line may go on with
        importlib.import_module("argcomplete").autocomplete(parser)
    parser.refuse_unknown(arguments)
    return parser


#: Programs that are in a checkout only, by what they would be called here.
_IN_A_CHECKOUT = {"bench": "python -m bench", "ladder": "python -m apps.ladder"}


class _Version(argparse.Action):
    def __call__(self, *_: Any) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print("semiring-mm", version("semiring-mm"))
        except PackageNotFoundError:
            print("semiring-mm, not installed")
        raise SystemExit(0)
