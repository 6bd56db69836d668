"""Against a daemon that runs, on the sockets that the environment names."""

import doctest
import os
import pathlib
import sys
import tempfile
import typing
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pghot  # noqa: E402
import schema  # noqa: E402

class Types(unittest.TestCase):
    def test_types_have_the_fields_of_the_schema(self) -> None:
        for name, definition in {
            "status": pghot.Status,
            "SettingReport": pghot.Setting,
            "LowerNode": pghot.LowerNode,
            "TopNode": pghot.TopNode,
            "SourceReport": pghot.Source,
            "ReloadReport": pghot.Reload,
            "Change": pghot.Change,
            "RecordReport": pghot.Record,
            "DecisionReport": pghot.Decision,
            "explain": pghot.Explanation,
            "OwnerMoves": pghot.Moves,
            "OwnerRow": pghot.Owner,
            "status_by": pghot.Owners,
        }.items():
            fields = set(typing.get_type_hints(definition))
            # On the socket, of the answers the status alone has its version.
            expected = set(schema.resolved(name)["properties"])
            self.assertEqual(fields, expected - ({"schema"} if name in ("explain", "status_by") else set()), name)

    def test_the_schema_refuses_what_is_none(self) -> None:
        status = dict(pghot.Client().status())
        self.assertEqual(schema.document_errors("status", status), [])
        for field in status:
            less = {name: value for name, value in status.items() if name != field}
            self.assertEqual(schema.document_errors("status", less), [f": there is no {field}"])
        for wrong in [{"uptime_s": "1"}, {"warnings": [1]}, {"records_bytes": -1}, {"new": 1}]:
            self.assertNotEqual(schema.document_errors("status", status | wrong), [], wrong)


class Asked(unittest.TestCase):
    def setUp(self) -> None:
        self.client = pghot.Client()

    def test_status_has_the_fields_of_its_type(self) -> None:
        status = self.client.status()
        self.assertEqual(set(status), set(typing.get_type_hints(pghot.Status)))
        self.assertEqual(status["schema"], pghot.SCHEMA)
        fields = set(typing.get_type_hints(pghot.LowerNode))
        self.assertEqual(set(status["lower_tier"][0]), fields)
        self.assertEqual(schema.document_errors("status", status), [])

    def test_set_changes_and_says_why_not(self) -> None:
        self.assertEqual(self.client.set("kmigrated_sleep_ms", "0x64"), "100")
        with self.assertRaisesRegex(pghot.Invalid, "50 to 1000 ms"):
            self.client.set("kmigrated_sleep_ms", 1)
        self.assertEqual(self.client.status()["settings"]["kmigrated_sleep_ms"]["value"], 100)

    def test_decisions_come_with_all_fields(self) -> None:
        (decision,) = self.client.decisions()
        self.assertEqual(set(decision), set(typing.get_type_hints(pghot.Decision)))
        self.assertIsNotNone(decision["pfn"])
        document = {"schema": pghot.SCHEMA, "decisions": [decision]}
        self.assertEqual(schema.document_errors("explain_last", document), [])

    def test_a_page_is_explained(self) -> None:
        explanation = self.client.explain(os.getppid(), 0x1000)
        self.assertEqual(set(explanation), set(typing.get_type_hints(pghot.Explanation)))
        document = {"schema": pghot.SCHEMA, **explanation}
        self.assertEqual(schema.document_errors("explain", document), [])

    def test_owners_are_told(self) -> None:
        for by in ("cgroup", "process"):
            owners = self.client.owners(by)
            self.assertEqual(set(owners), set(typing.get_type_hints(pghot.Owners)))
            document = {"schema": pghot.SCHEMA, **owners}
            self.assertEqual(schema.document_errors("status_by", document), [])
        with self.assertRaises(pghot.PghotError):
            self.client.owners("planet")

    def test_a_config_file_that_is_none_is_an_error(self) -> None:
        with self.assertRaisesRegex(pghot.Invalid, "no config file"):
            self.client.reload()

    def test_readers_may_ask_and_change_nothing(self) -> None:
        readers = pghot.Client(os.environ["PGHOT_STATUS_SOCKET"])
        self.assertEqual(readers.status()["schema"], pghot.SCHEMA)
        self.assertIsNone(readers.decisions()[0]["pfn"])
        with self.assertRaisesRegex(pghot.PghotError, "control socket"):
            readers.set("freq_threshold", 1)

    def test_nobody_is_there(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            nobody = pghot.Client(f"{folder}/sock", f"{folder}/status")
            with self.assertRaises(pghot.NotRunning):
                nobody.status()

    def test_the_examples_of_the_readme(self) -> None:
        examples = str(ROOT / "README.md")
        failed, tried = doctest.testfile(examples, module_relative=False)
        self.assertGreater(tried, 8)
        self.assertEqual(failed, 0)


if __name__ == "__main__":
    unittest.main()
