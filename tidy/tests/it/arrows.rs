//! The arrows between crates, as ARCHITECTURE.md draws them.

use std::collections::BTreeMap;
use std::process::Command;

/// Which of the workspace's crates each crate may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("hapo-core", &[]),
    ("hapo-verify", &[]),
    ("hapo-net", &["hapo-core", "hapo-verify"]),
    ("hapo-run", &["hapo-core"]),
    ("hapo-kernels", &["hapo-core"]),
    ("hapo-cuda", &["hapo-core", "hapo-kernels", "hapo-run"]),
    ("hapo-data", &["hapo-core", "hapo-run"]),
    ("hapo-model", &["hapo-core", "hapo-kernels"]),
    ("hapo-sampler", &["hapo-core", "hapo-data", "hapo-kernels", "hapo-model"]),
    (
        "hapo-train",
        &[
            "hapo-core",
            "hapo-data",
            "hapo-eval",
            "hapo-kernels",
            "hapo-model",
            "hapo-net",
            "hapo-run",
            "hapo-sampler",
            "hapo-verify",
        ],
    ),
    (
        "hapo-eval",
        &[
            "hapo-core",
            "hapo-data",
            "hapo-kernels",
            "hapo-model",
            "hapo-net",
            "hapo-run",
            "hapo-sampler",
            "hapo-verify",
        ],
    ),
    ("hapo-serve", &["hapo-core", "hapo-data", "hapo-kernels", "hapo-model", "hapo-sampler"]),
    ("hapo-report", &["hapo-core", "hapo-run", "hapo-verify"]),
    (
        "hapo-lab",
        &[
            "hapo-cli",
            "hapo-core",
            "hapo-data",
            "hapo-eval",
            "hapo-kernels",
            "hapo-model",
            "hapo-run",
            "hapo-sampler",
            "hapo-train",
            "hapo-verify",
        ],
    ),
    (
        "hapo",
        &[
            "hapo-core",
            "hapo-data",
            "hapo-eval",
            "hapo-kernels",
            "hapo-model",
            "hapo-report",
            "hapo-sampler",
            "hapo-train",
            "hapo-verify",
        ],
    ),
    (
        "hapo-python",
        &[
            "hapo-cli",
            "hapo-core",
            "hapo-data",
            "hapo-kernels",
            "hapo-model",
            "hapo-run",
            "hapo-sampler",
            "hapo-train",
            "hapo-verify",
            "hapo-verify-python",
        ],
    ),
    ("hapo-verify-python", &["hapo-verify"]),
    // Only ever a dev-dependency: no other row names it.
    ("hapo-testing", &["hapo-core", "hapo-kernels", "hapo-model"]),
    ("hapo-tidy", &[]),
    // In `conformance/`: the reference must share no line with the code it checks.
    ("lossproof-hapo", &["hapo-core"]),
    ("lossproof-reference", &[]),
    (
        "hapo-cli",
        &[
            "hapo-core",
            "hapo-cuda",
            "hapo-data",
            "hapo-eval",
            "hapo-kernels",
            "hapo-model",
            "hapo-net",
            "hapo-report",
            "hapo-run",
            "hapo-sampler",
            "hapo-serve",
            "hapo-train",
            "hapo-verify",
        ],
    ),
];

fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|it| it["kind"].is_null());
            let names = uses.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
            (package["name"].as_str().unwrap().to_owned(), names)
        })
        .collect()
}

#[test]
fn crates_use_only_what_their_arrows_allow() {
    for (name, uses) in dependencies() {
        let allowed = ARROWS
            .iter()
            .find(|it| it.0 == name)
            .unwrap_or_else(|| panic!("{name} has no arrows yet"))
            .1;
        for it in uses.iter().filter(|it| it.starts_with("hapo-")) {
            assert!(allowed.contains(&it.as_str()), "{name} must not use {it}");
        }
    }
}

#[test]
fn every_crate_of_the_map_exists() {
    let existing = dependencies();
    for (name, _) in ARROWS {
        assert!(existing.contains_key(*name), "{name} is in the map and not in the workspace");
    }
}

#[test]
fn core_depends_on_serde_and_libm_alone() {
    assert_eq!(dependencies()["hapo-core"], ["libm", "serde"]);
}

#[test]
fn only_the_binaries_and_the_python_module_use_anyhow() {
    for (name, uses) in dependencies() {
        let may =
            ["hapo-cli", "hapo-lab", "hapo-python", "lossproof-hapo"].contains(&name.as_str());
        assert!(may || !uses.contains(&"anyhow".to_owned()), "{name} uses anyhow");
    }
}

#[test]
fn every_crate_has_its_row_in_the_architecture() {
    let map = std::fs::read_to_string(hapo_tidy::root().join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<&str> = map
        .lines()
        .filter_map(|it| it.strip_prefix("| `hapo")?.split_once("` |"))
        .map(|it| it.0)
        .collect();
    let crates: Vec<String> = dependencies().into_keys().collect();
    for name in crates.iter().filter(|name| name.starts_with("hapo")) {
        let short = name.trim_start_matches("hapo");
        assert!(rows.contains(&short), "{name} is not in ARCHITECTURE.md");
    }
    for row in rows {
        let name = format!("hapo{row}");
        assert!(crates.contains(&name), "ARCHITECTURE.md has {name}, the workspace not");
    }
}
