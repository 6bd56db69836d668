//! What `--json` prints: documents that have the version of their format, and the schema of all.

use pghot_daemon::doctor::Diagnosis;
use pghot_daemon::owners::OwnersReport;
use pghot_daemon::protocol::{DecisionReport, Explanation};
use pghot_daemon::status::{SCHEMA, Status};
use pghot_sim::run::Run;
use pghot_sim::tables::Table;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::advise::Answers;
use crate::heatmap::json::Maps;

/// A document of its own: with the version of the format.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Versioned{T}")]
pub struct Versioned<T> {
    /// Version of the format.
    schema: u32,
    #[serde(flatten)]
    body: T,
}

impl<T> Versioned<T> {
    /// In the present version.
    pub fn of(body: T) -> Versioned<T> {
        let schema = SCHEMA;
        Versioned { schema, body }
    }
}

/// Of `pghot explain --last`.
#[derive(Serialize, JsonSchema)]
pub struct Decisions {
    /// The newest first.
    pub decisions: Vec<DecisionReport>,
}

/// Of `pghot sim run` and `replay`.
#[derive(Serialize, JsonSchema)]
pub struct Runs {
    /// One of each system, in the order of the command line.
    pub runs: Vec<Run>,
}

/// Of `pghot sim tables`.
#[derive(Serialize, JsonSchema)]
pub struct Tables {
    /// Those that were asked for.
    pub tables: Vec<Table>,
}

/// Of `pghot profile show`.
#[derive(Serialize, JsonSchema)]
pub struct Profiles {
    /// One of each program, by host.
    pub profiles: Vec<ProfileRow>,
}

/// What a program of a host has and uses.
#[derive(Serialize, JsonSchema)]
pub struct ProfileRow {
    /// The host: the name of the profile's file, or what the table says.
    pub host: String,
    /// Number of the process in the profile.
    pub process: u32,
    /// Path of its control group; empty where it is not known.
    pub cgroup: String,
    /// The program's name.
    pub command: String,
    /// Memory in which it ever had a page, in MiB.
    pub memory_mib: u64,
    /// Touched in a second, in MiB; in an interval each page counts once.
    pub touched_mib_per_s: f64,
    /// CPUs that it kept busy.
    pub cpus: f64,
}

type Make = fn(&mut SchemaGenerator) -> Schema;

/// Every document, by the command that prints it.
const DOCUMENTS: [(&str, Make); 10] = [
    ("status", SchemaGenerator::subschema_for::<Status>),
    (
        "status_by",
        SchemaGenerator::subschema_for::<Versioned<OwnersReport>>,
    ),
    (
        "heatmap",
        SchemaGenerator::subschema_for::<Versioned<Maps<'_>>>,
    ),
    (
        "explain",
        SchemaGenerator::subschema_for::<Versioned<Explanation>>,
    ),
    (
        "explain_last",
        SchemaGenerator::subschema_for::<Versioned<Decisions>>,
    ),
    (
        "doctor",
        SchemaGenerator::subschema_for::<Versioned<Diagnosis>>,
    ),
    (
        "advise",
        SchemaGenerator::subschema_for::<Versioned<Answers>>,
    ),
    (
        "profile_show",
        SchemaGenerator::subschema_for::<Versioned<Profiles>>,
    ),
    ("sim_run", SchemaGenerator::subschema_for::<Versioned<Runs>>),
    (
        "sim_tables",
        SchemaGenerator::subschema_for::<Versioned<Tables>>,
    ),
];

/// The schema of what all commands print: each document is one of its definitions.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let documents = DOCUMENTS.map(|(name, make)| (name, make(&mut generator)));
    let mut definitions: Map<String, Value> = generator.take_definitions(true);
    let refer = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    let any: Vec<Value> = documents.iter().map(|(name, _)| refer(name)).collect();
    for (name, document) in documents {
        definitions.insert(name.to_owned(), document.to_value());
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What the commands of pghot print with --json",
        "description": format!(
            "Version {SCHEMA}, in the field `schema` of each document. It grows when a field goes \
             or means something else; new fields leave it. The definitions in lower case are the \
             documents, by the command that prints them."
        ),
        "anyOf": any,
        "$defs": definitions,
    })
}
