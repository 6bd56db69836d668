"""On a local Ray cluster of three workers, with the binary that `PGHOT` names."""

import doctest
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PGHOT = os.environ["PGHOT"]
# Workers are other processes.
os.environ["PYTHONPATH"] = str(ROOT)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# For the commands of the README.
os.environ["PATH"] = os.pathsep.join([str(pathlib.Path(PGHOT).parent), os.environ["PATH"]])

import ray  # noqa: E402

import pghot_fleet  # noqa: E402

FILES = ("sweep.csv", "sweep.html", "sweep.parquet")

SCENARIO = """
name = "cache"
mode = "statistical"
[[machine.node]]
memory_mib = 512
cpus = 4
latency_ns = [100, 250]
[[machine.node]]
memory_mib = 1024
[[process]]
memory_mib = 384
threads = 4
[[process.phase]]
pattern = "skewed"
hot = [0.8, 0.9]
hot_percent = 90
accesses = 200_000_000
"""

PLAN = pghot_fleet.Plan(("none", "pghot"), {"pghot.freq_threshold": (1, 2)}, (100, 60, 30))


def process_of(needle: str) -> tuple[int, int] | None:
    """Some process with that in its command line, and its parent."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if needle in line:
            return int(entry.name), parent
    return None


def runs(pid: int) -> bool:
    """Whether a process does; one that nobody has waited for yet has no command line."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def until(what: str, condition):
    """What the condition gives, as soon as that is something."""
    for _ in range(6000):
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within a minute: {what}")


class Fleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        os.chdir(cls.dir)
        for name, accesses in {"cache.toml": "200_000_000", "web.toml": "100_000_000", "long.toml": "20_000_000_000"}.items():
            text = SCENARIO.replace("200_000_000", accesses).replace('"cache"', f'"{name}"')
            pathlib.Path(name).write_text(text)
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)

    @classmethod
    def tearDownClass(cls) -> None:
        ray.shutdown()
        cls.folder.cleanup()

    def local(self, scenario: str, plan: pghot_fleet.Plan) -> dict[str, bytes]:
        out = f"local-{scenario}"
        subprocess.run([PGHOT, "sim", "sweep", scenario, *plan.flags(), "--out", out], check=True, capture_output=True)
        return {file: pathlib.Path(out, file).read_bytes() for file in FILES}

    def assert_same(self, folder: pathlib.Path, expected: dict[str, bytes]) -> None:
        for file, content in expected.items():
            self.assertTrue((folder / file).read_bytes() == content, f"{folder / file} is not what one run gives")

    def test_a_fleet_says_what_one_machine_says(self) -> None:
        told = []
        scenarios = ["cache.toml", "web.toml"]
        folders = pghot_fleet.sweep(scenarios, PLAN, shards=4, out="many", pghot=PGHOT, progress=told.append)
        self.assertEqual(list(folders), scenarios)
        for scenario, folder in folders.items():
            self.assert_same(folder, self.local(scenario, PLAN))
        self.assertEqual([it.done for it in told], list(range(1, 9)))
        self.assertEqual(told[-1].left_s, 0)
        # The baseline, and three sizes of `none` and of both thresholds.
        self.assertEqual(PLAN.points(), 1 + 3 + 2 * 3)

    def test_advice_of_a_fleet_is_that_of_one_machine(self) -> None:
        files, told = ["cache.toml", "web.toml"], []
        asked = {"slowdown": 5.0, "seeds": 1, "out": "advice", "pghot": PGHOT}
        advice = pghot_fleet.advise(files, **asked, progress=told.append)
        self.assertEqual([(it.done, it.tasks) for it in told], [(1, 2), (2, 2)])
        self.assertEqual(advice.refused, {})
        command = [PGHOT, "advise", *files, "--slowdown", "5", "--seeds", "1", "--json", "--out", "alone"]
        alone = subprocess.run(command, check=True, capture_output=True, text=True)
        self.assertEqual(advice.said, alone.stdout)
        self.assertEqual(advice.page.read_bytes(), pathlib.Path("alone/advise.html").read_bytes())
        # Workers begin with what was kept: a run that nobody asks for is still there.
        kept = pathlib.Path("advice/cache.toml.runs")
        extra = "nobody asks\t" + kept.read_text().splitlines()[1].split("\t", 1)[1]
        with kept.open("a") as runs:
            runs.write(extra + "\n")
        self.assertEqual(pghot_fleet.advise(files, **asked).said, alone.stdout)
        self.assertIn(extra, kept.read_text().splitlines())
        # One that has no answer takes none from the others.
        pathlib.Path("short.toml").write_text(SCENARIO.replace("cpus = 4", "cpus = 0"))
        some = pghot_fleet.advise(["short.toml", *files], **asked)
        self.assertEqual(some.said, alone.stdout)
        self.assertEqual(list(some.refused), ["short.toml"])
        self.assertRegex(some.refused["short.toml"], "^pghot: short.toml: machine.node.0..latency_ns: ")
        with self.assertRaisesRegex(pghot_fleet.Failed, "latency_ns"):
            pghot_fleet.advise(["short.toml"], **asked)
        with self.assertRaisesRegex(pghot_fleet.Failed, "--slowdown -1"):
            pghot_fleet.advise(files, slowdown=-1.0, pghot=PGHOT)

    def test_files_of_the_same_content_are_two(self) -> None:
        pathlib.Path("same.toml").write_text(pathlib.Path("cache.toml").read_text())
        for name in ("cache.toml", "same.toml", "same.toml"):
            here = pghot_fleet.cluster.Input.send(pathlib.Path(name)).here()
            self.assertEqual((here.name, here.read_bytes()), (name, pathlib.Path(name).read_bytes()))

    def killed(self, retries: int):
        """A sweep of which a worker is killed in the middle of a shard, and what came of it."""
        plan = pghot_fleet.Plan(("pghot",), {}, (90, 60, 30))
        result = []

        def run() -> None:
            try:
                out = f"killed-{retries}"
                result.append(pghot_fleet.sweep(["long.toml"], plan, shards=3, out=out, retries=retries, pghot=PGHOT))
            except Exception as error:  # noqa: BLE001
                result.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        child, worker = until("a worker runs a shard", lambda: process_of("--shard 2/3"))
        self.assertIn("ray::", pathlib.Path(f"/proc/{worker}/cmdline").read_text())
        os.kill(worker, signal.SIGKILL)
        until("pghot dies with its worker", lambda: not runs(child))
        thread.join()
        return result[0], plan

    def test_a_killed_worker_changes_no_byte(self) -> None:
        folders, plan = self.killed(retries=3)
        self.assertIsInstance(folders, dict, folders)
        self.assert_same(folders["long.toml"], self.local("long.toml", plan))

    def test_without_retries_a_killed_worker_ends_the_sweep(self) -> None:
        error, _ = self.killed(retries=0)
        self.assertIsInstance(error, ray.exceptions.WorkerCrashedError)
        self.assertFalse(pathlib.Path("killed-0").exists())
        until("the other shards end too", lambda: process_of("--shard") is None)

    def test_what_a_killed_worker_leaves_is_removed_by_the_next(self) -> None:
        code = "import time; from pghot_fleet import scratch; print(scratch.folder(), flush=True); time.sleep(600)"

        def begin() -> tuple[subprocess.Popen, pathlib.Path]:
            env = {**os.environ, "TMPDIR": str(self.dir)}
            worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
            self.addCleanup(worker.stdout.close)
            self.addCleanup(worker.wait)
            self.addCleanup(worker.kill)
            folder = pathlib.Path(worker.stdout.readline().strip())
            (folder / "pghot").write_text("large")
            return worker, folder

        (killed, left), (_, living) = begin(), begin()
        foreign = self.dir / "pghot-fleet-worker-without-a-lock"
        foreign.mkdir()
        killed.kill()
        killed.wait()
        self.assertTrue((left / "pghot").exists())
        _, next_one = begin()
        self.assertFalse(left.exists())
        for folder in (living, next_one):
            self.assertTrue((folder / "pghot").exists())
        self.assertTrue(foreign.exists())

    def test_what_is_wrong_is_told_in_the_words_of_pghot(self) -> None:
        plan = pghot_fleet.Plan(("nonsense",), {}, (50,))
        with self.assertRaisesRegex(pghot_fleet.Failed, "nonsense"):
            pghot_fleet.sweep(["cache.toml"], plan, pghot=PGHOT)
        # Ray can abort if what has ended is cancelled, as the shard is that says what is wrong.
        ended = []
        with unittest.mock.patch.object(ray, "cancel", lambda task, force: ended.extend(ray.wait([task], timeout=0)[0])):
            with self.assertRaisesRegex(pghot_fleet.Failed, "nonsense"):
                pghot_fleet.sweep(["cache.toml"], plan, shards=6, pghot=PGHOT)
        self.assertEqual(ended, [], "cancelled, though it had ended")
        with self.assertRaisesRegex(pghot_fleet.Failed, "no program /nowhere"):
            pghot_fleet.sweep(["cache.toml"], PLAN, pghot="/nowhere")
        with self.assertRaisesRegex(pghot_fleet.Failed, "no file nowhere.toml"):
            pghot_fleet.sweep(["cache.toml", "nowhere.toml"], PLAN, pghot=PGHOT)
        pathlib.Path("other").mkdir()
        pathlib.Path("other/cache.toml").write_text(SCENARIO)
        with self.assertRaisesRegex(pghot_fleet.Failed, "cache.toml is the name of two files"):
            pghot_fleet.sweep(["cache.toml", "other/cache.toml"], PLAN, pghot=PGHOT)

    def test_a_search_finds_less_dram_within_the_slowdown(self) -> None:
        space = {"freq_threshold": (1, 3)}
        found = [
            pghot_fleet.search("cache.toml", space, slowdown=10.0, trials=16, at_once=4, pghot=PGHOT) for _ in range(2)
        ]
        self.assertEqual(found[0], found[1], "the same search finds the same")
        best = found[0].trial
        self.assertLessEqual(best.slowdown_percent, 10.0)
        good = [trial for trial in found[0].trials if trial.slowdown_percent <= 10.0]
        self.assertEqual(best.top_percent, min(trial.top_percent for trial in good))
        # What it says of its best is what a sweep of that says.
        plan = pghot_fleet.Plan(("pghot",), {"pghot.freq_threshold": (best.settings["freq_threshold"],)}, (best.top_percent,))
        rows = self.local("cache.toml", plan)["sweep.csv"].decode().splitlines()
        self.assertEqual(float(rows[1].split(",")[5]), best.slowdown_percent)
        none = pghot_fleet.search("cache.toml", space, slowdown=-100.0, trials=2, pghot=PGHOT)
        self.assertIsNone(none.trial)

    def test_the_examples_of_the_readme(self) -> None:
        text = (ROOT / "README.md").read_text()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        examples = doctest.DocTestParser().get_doctest(text, {}, "README.md", None, 0)
        self.assertGreater(len(examples.examples), 3)
        self.assertEqual(runner.run(examples).failed, 0)
        blocks = re.findall(r"(<!-- not run: [^>]*-->\n)?```sh\n(.*?)```", text, re.S)
        blocks = [block for not_run, block in blocks if not not_run]
        self.assertGreater(len(blocks), 1)
        program = f'pghot-fleet() {{ "{sys.executable}" -m pghot_fleet "$@"; }}\n'
        # They join this cluster.
        address = ray.get_runtime_context().gcs_address
        for block in blocks:
            ran = subprocess.run(
                ["bash", "-ec", program + block], capture_output=True, text=True, env=os.environ | {"RAY_ADDRESS": address}
            )
            self.assertEqual(ran.returncode, 0, block + ran.stderr)


if __name__ == "__main__":
    unittest.main()
