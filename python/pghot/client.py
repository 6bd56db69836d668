"""The client: one question and one answer on the daemon's socket, each a line of JSON."""

import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

from .types import Decision, Explanation, Owners, Reload, Status

#: The version of the answers that this client knows.
SCHEMA = 1

#: Root's socket, on which everything is answered.
CONTROL_SOCKET = "/run/pghot/pghot.sock"

#: The socket of the group pghot: the status and the newest decisions.
STATUS_SOCKET = "/run/pghot/status.sock"


class PghotError(Exception):
    """The daemon could not be asked, or did not do it; the sentence says why."""


class NotRunning(PghotError):
    """Nobody listens on the socket."""


class Denied(PghotError):
    """The socket is for others."""


class Invalid(PghotError):
    """A name, a value or the config file is not possible. Nothing has changed."""


class Client:
    """Asks the daemon of this machine, with a connection for each question.

    Without arguments, PGHOT_SOCKET and PGHOT_STATUS_SOCKET of the environment name the sockets,
    or else they are where the daemon has them by default.
    """

    def __init__(
        self,
        control_socket: str | None = None,
        status_socket: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        of = os.environ.get
        self.control_socket = control_socket or of("PGHOT_SOCKET", CONTROL_SOCKET)
        self.status_socket = status_socket or of("PGHOT_STATUS_SOCKET", STATUS_SOCKET)
        self.timeout_s = timeout_s

    def status(self) -> Status:
        """What the daemon does. Members of the group pghot may ask."""
        status = self._ask_as_reader({"command": "status"}, "status")
        if status.get("schema") != SCHEMA:
            raise PghotError(
                f"the daemon answers in version {status.get('schema')}, and this client knows "
                f"version {SCHEMA}: install the client of the daemon's version"
            )
        return cast(Status, status)

    def owners(self, by: str = "cgroup") -> Owners:
        """Whose memory is where, and whose pages moved: by "cgroup" or by "process"."""
        return cast(Owners, self._ask_as_reader({"command": "owners", "by": by}, "owners"))

    def watch(self, interval_s: float = 1.0) -> Iterator[Status]:
        """The status again and again, one every interval_s seconds. It ends with an error."""
        due = time.monotonic()
        while True:
            yield self.status()
            due = max(due + interval_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def explain(self, pid: int, address: int) -> Explanation:
        """Why the page at an address of a process is where it is. Root may ask."""
        question = {"command": "explain", "pid": pid, "address": address}
        return cast(Explanation, self._ask(self.control_socket, question, "explanation"))

    def decisions(self, count: int = 20) -> list[Decision]:
        """The newest decisions, the newest first. Only root learns addresses and page frames."""
        question = {"command": "explain_last", "count": count}
        return cast(list[Decision], self._ask_as_reader(question, "decisions"))

    def set(self, name: str, value: int | str) -> str:
        """Changes a tunable until the daemon ends, and returns its value as text."""
        question = {"command": "set", "name": name, "value": str(value)}
        return str(self._ask(self.control_socket, question, "done")["value"])

    def reload(self) -> Reload:
        """Has the config file read again. Raises Invalid if it cannot be used."""
        report = self._ask(self.control_socket, {"command": "reload"}, "reloaded")
        if report["error"] is not None:
            raise Invalid(report["error"])
        return cast(Reload, report)

    def _ask_as_reader(self, question: dict[str, Any], kind: str) -> Any:
        try:
            return self._ask(self.control_socket, question, kind)
        except Denied:
            return self._ask(self.status_socket, question, kind)

    def _ask(self, path: str, question: dict[str, Any], kind: str) -> Any:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
                stream.settimeout(self.timeout_s)
                stream.connect(path)
                stream.sendall(json.dumps(question).encode() + b"\n")
                with stream.makefile("rb") as lines:
                    line = lines.readline()
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(f"pghot is not running (nobody listens on {path})") from None
        except PermissionError:
            raise Denied(f"you may not ask the daemon on {path}: run this as root") from None
        except OSError as error:
            raise PghotError(f"no answer from the daemon on {path}: {error}") from error
        answer = json.loads(line) if line else {}
        if kind in answer:
            return answer[kind]
        if "invalid" in answer:
            raise Invalid(answer["invalid"])
        raise PghotError(answer.get("error", f"the daemon on {path} gave no answer"))
