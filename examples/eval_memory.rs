//! Measures the ranking of memory search with the real code on an in-memory index:
//!
//! `cargo run --release --no-default-features --example eval_memory -- DATA.jsonl [--facts] [--tenants A,B]
//! [--dump FILE]`
//!
//! The data has one JSON object per line: `turn` (tenant, session, id, ts, speaker, text, image), `fact`
//! (tenant, session, date, speaker, text, source) and `question` (tenant, category, text, evidence).
//! Each tenant's memory is searched separately. Recall at k is the share of a question's evidence among
//! the first k hits.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use edge_harness::{
    memory::{
        entries::{Origin, entry},
        search,
    },
    platform::in_memory::InMemoryIndex,
    ports::{
        MemoryIndex,
        memory::{Collection, CollectionKind, Source},
    },
    types::Timestamp,
};
use futures::executor::block_on;
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

const KS: [usize; 4] = [1, 5, 10, 50];

/// Totals of one category.
#[derive(Default)]
struct Sums {
    questions: f64,
    recall: [f64; 4],
    mrr: f64,
    full: f64,
    session: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let facts = arguments.iter().any(|argument| argument == "--facts");
    let option = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).cloned()
    };
    let tenants: Option<Vec<String>> =
        option("--tenants").map(|list| list.split(',').map(str::to_owned).collect());
    let text = fs::read_to_string(&arguments[1]).expect("a data file");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();

    let index = InMemoryIndex::default();
    let mut sources: HashMap<(String, String), Vec<String>> = HashMap::new();
    let mut sessions: HashMap<(String, String), String> = HashMap::new();
    let mut entries: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in &lines {
        let tenant = of(line, "tenant");
        let mine = entries.entry(tenant.clone()).or_default();
        let (key, at) = match (line["type"].as_str().unwrap(), facts) {
            ("turn", false) => (of(line, "id"), of(line, "ts")),
            ("fact", true) => (format!("f{:04}", mine.len()), format!("{}T12:00:00Z", of(line, "date"))),
            ("turn", true) => {
                sessions.insert((tenant, of(line, "id")), of(line, "session"));
                continue;
            }
            _ => continue,
        };
        let mut text = of(line, "text");
        if let Some(image) = line["image"].as_str().filter(|image| !image.is_empty()) {
            text += &format!(" [shares {image}]");
        }
        let session = of(line, "session");
        let found = line["source"].as_array().cloned().unwrap_or_else(|| vec![Value::from(key.clone())]);
        let found = found.iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        sources.insert((tenant.clone(), key.clone()), found);
        if !facts {
            sessions.insert((tenant, key.clone()), session.clone());
        }
        let origin = Origin {
            key,
            source: if facts { Source::Log } else { Source::Session },
            group: session.clone(),
            session: Some(session.into()),
            at: Timestamp::parse(&at).unwrap(),
            speaker: Some(of(line, "speaker")),
        };
        mine.push(entry(origin, &text));
    }
    let kind = if facts { CollectionKind::Facts } else { CollectionKind::Turns };
    let collection =
        |tenant: &str| Collection { tenant: tenant.into(), agent: "a".into(), user: "u".into(), kind };
    for (tenant, entries) in &entries {
        block_on(index.add(&collection(tenant), entries)).unwrap();
    }

    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    let (mut most, mut took, mut dump) = (0, Vec::new(), String::new());
    for line in lines.iter().filter(|line| line["type"] == "question") {
        let tenant = of(line, "tenant");
        let evidence: Vec<String> =
            line["evidence"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        if evidence.is_empty() || tenants.as_ref().is_some_and(|tenants| !tenants.contains(&tenant)) {
            continue;
        }
        let (before, start) = (index.rows_read.get(), Instant::now());
        let hits = block_on(search(&index, &collection(&tenant), &of(line, "text"), 50)).unwrap();
        took.push(start.elapsed());
        most = most.max(index.rows_read.get() - before);
        let keys: Vec<&str> = hits.iter().map(|hit| hit.entry.key.as_str()).collect();
        dump += &format!("{}\n", serde_json::json!({"id": line["id"], "hits": keys}));
        let cites = |key: &str, id: &String| sources[&(tenant.clone(), key.to_owned())].contains(id);
        let rank = |id: &String| keys.iter().position(|key| cites(key, id)).unwrap_or(usize::MAX);
        let ranks: Vec<usize> = evidence.iter().map(rank).collect();
        let session = |id: &String| sessions.get(&(tenant.clone(), id.clone()));
        let gold: HashSet<_> = evidence.iter().filter_map(session).collect();
        let first = hits.first().is_some_and(|hit| gold.contains(&hit.entry.group));
        for category in ["all".to_owned(), of(line, "category")] {
            let sums = sums.entry(category).or_default();
            sums.questions += 1.0;
            for (sum, k) in sums.recall.iter_mut().zip(KS) {
                *sum += ranks.iter().filter(|rank| **rank < k).count() as f64 / ranks.len() as f64;
            }
            let best = ranks.iter().min().copied().unwrap();
            sums.mrr += if best < usize::MAX { 1.0 / (best + 1) as f64 } else { 0.0 };
            sums.full += f64::from(u8::from(ranks.iter().all(|rank| *rank < 10)));
            sums.session += f64::from(u8::from(first));
        }
    }
    if let Some(file) = option("--dump") {
        fs::write(file, dump).unwrap();
    }
    println!(
        "{:28}{:>6}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "", "n", "R@1", "R@5", "R@10", "R@50", "MRR", "full@10", "sess@1"
    );
    for (category, sums) in &sums {
        let share = |sum: f64| format!("{:8.2}", 100.0 * sum / sums.questions);
        let recall: String = sums.recall.iter().map(|sum| share(*sum)).collect();
        println!(
            "{category:28}{:6}{recall}{}{}{}",
            sums.questions,
            share(sums.mrr),
            share(sums.full),
            share(sums.session)
        );
    }
    took.sort();
    let total: Duration = took.iter().sum();
    println!(
        "at most {most} rows per search; {:?} per search, {:?} at p95",
        total / took.len() as u32,
        took[took.len() * 95 / 100]
    );
}
