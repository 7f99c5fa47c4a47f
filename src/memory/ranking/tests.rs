use super::*;
use crate::memory::{
    Hit,
    entries::{Origin, entry},
    search,
};
use crate::platform::in_memory::InMemoryIndex;
use crate::ports::{
    MemoryIndex,
    memory::{Collection, CollectionKind, Entry, NewEntry, Place, Source},
};
use crate::types::Timestamp;
use futures::executor::block_on;
use proptest::prelude::*;

fn collection(user: &str) -> Collection {
    Collection { tenant: "t".into(), agent: "a".into(), user: user.into(), kind: CollectionKind::Turns }
}

fn turn(key: usize, group: &str, speaker: &str, text: &str) -> NewEntry {
    let origin = Origin {
        key: format!("k{key:04}"),
        source: Source::Session,
        group: group.into(),
        session: Some(group.into()),
        at: Timestamp(key as u64 * 60_000),
        speaker: Some(speaker.into()),
    };
    entry(origin, text)
}

fn index(turns: &[(&str, &str, &str)]) -> InMemoryIndex {
    let index = InMemoryIndex::default();
    let entries: Vec<NewEntry> = turns
        .iter()
        .enumerate()
        .map(|(key, (group, speaker, text))| turn(key, group, speaker, text))
        .collect();
    block_on(index.add(&collection("u"), &entries)).unwrap();
    index
}

fn ask(index: &InMemoryIndex, query: &str) -> Vec<Hit> {
    block_on(search(index, &collection("u"), query, MAX_HITS)).unwrap()
}

fn texts(hits: &[Hit]) -> Vec<&str> {
    hits.iter().map(|hit| hit.entry.text.as_str()).collect()
}

fn counted(frequencies: &[u64]) -> WeightedQuery {
    let terms = frequencies.iter().enumerate();
    let terms =
        terms.map(|(at, frequency)| Term { text: format!("t{at:02}"), frequency: *frequency }).collect();
    WeightedQuery { terms, speakers: Vec::new(), documents: 100_000, length: 2_000_000, groups: 5_000 }
}

#[test]
fn an_answer_without_words_of_the_query_is_found_next_to_its_question() {
    let index = index(&[
        ("s1", "assistant", "Good morning."),
        ("s1", "assistant", "Which pottery class did you pick?"),
        ("s1", "user", "The one on Elm Street, with the tall teacher."),
        ("s1", "assistant", "Have fun there."),
        ("s2", "user", "Something else."),
    ]);
    let hits = ask(&index, "my pottery class");
    assert_eq!(texts(&hits)[1], "The one on Elm Street, with the tall teacher.");
    assert!(!texts(&hits).contains(&"Something else."));
}

#[test]
fn entries_of_a_named_speaker_come_first() {
    let index = index(&[
        ("s1", "Ana Luz", "I went sailing."),
        ("s2", "Ben", "I went sailing."),
        ("s3", "user", "I went sailing."),
        ("s4", "Ben", "Ana, hello Ana."),
    ]);
    let first = |query: &str| ask(&index, query)[0].entry.speaker.clone().unwrap();
    assert_eq!(first("When did Ana sail?"), "Ana Luz");
    assert_eq!(first("ben sailing"), "Ben");
    assert_eq!(first("When did I sail?"), "user");
}

#[test]
fn entries_are_found_by_date() {
    let index = InMemoryIndex::default();
    let mut entries = Vec::new();
    for (key, day) in
        ["2023-05-08T10:00:00Z", "2023-06-09T10:00:00Z", "2024-05-01T10:00:00Z"].iter().enumerate()
    {
        let mut new = turn(key, &format!("s{key}"), "user", "We met for lunch.");
        new.at = Timestamp::parse(day).unwrap();
        new.parts[0].terms = crate::memory::terms::index_terms(&new.parts[0].text, new.at, Some("user"));
        entries.push(new);
    }
    block_on(index.add(&collection("u"), &entries)).unwrap();
    assert_eq!(ask(&index, "lunch in June 2023")[0].entry.key, "k0001");
    assert_eq!(ask(&index, "lunch in May 2024")[0].entry.key, "k0002");
}

#[test]
fn ties_are_ordered_newest_first() {
    let index = index(&[("s1", "a", "blue kite"), ("s2", "a", "blue kite"), ("s3", "a", "blue kite")]);
    let keys: Vec<String> = ask(&index, "kite").into_iter().map(|hit| hit.entry.key).collect();
    assert_eq!(keys, ["k0002", "k0001", "k0000"]);
}

#[test]
fn a_long_turn_is_found_by_its_part() {
    let text = format!("{} zebra {}", "filler words here ".repeat(60), "more of the same ".repeat(60));
    let index = index(&[("s1", "a", &text), ("s1", "b", "Short.")]);
    let hits = ask(&index, "zebra");
    assert!(hits[0].entry.part > 0 && hits[0].entry.text.contains("zebra"));
    assert_eq!(hits.iter().filter(|hit| hit.entry.key == "k0000").count(), 1);
}

#[test]
fn a_query_without_meaningful_words_finds_nothing() {
    let index = index(&[("s1", "a", "blue kite")]);
    for query in ["", "   ", "?!\"'()*:^", "the of and", "unknown"] {
        assert_eq!(ask(&index, query), [], "{query:?}");
    }
    assert_eq!(block_on(search(&InMemoryIndex::default(), &collection("u"), "kite", 5)).unwrap(), []);
    assert!(block_on(search(&index, &collection("u"), "kite", 0)).unwrap().is_empty());
}

#[test]
fn a_frequent_word_stays_within_the_row_limit() {
    let index = InMemoryIndex::default();
    let entries: Vec<NewEntry> = (0..1_200)
        .map(|key| {
            let text = if key == 40 { "blue kite over green hills" } else { "blue kite and green boat" };
            turn(key, &format!("s{:02}", key / 40), if key % 2 == 0 { "user" } else { "assistant" }, text)
        })
        .collect();
    block_on(index.add(&collection("u"), &entries)).unwrap();
    index.rows_read.set(0);
    let hits = ask(&index, "my blue kite over the green hills");
    assert_eq!((hits[0].entry.key.as_str(), hits.len()), ("k0040", MAX_HITS));
    assert!(index.rows_read.get() <= MAX_ROWS as u64);
}

#[test]
fn rare_terms_are_selected_entirely_and_common_ones_in_combination() {
    let queries = build_queries(&counted(&[3, 20, 900, 1_000, 50_000]));
    let [rare, meeting, alone] = &queries[..] else { panic!("{queries:?}") };
    assert_eq!((&rare.any_of, rare.limit), (&vec![vec!["t00".into()], vec!["t01".into()]], 23));
    // By chance, terms of frequency 900 and 1,000 in 100,000 parts meet in nine; with the fifth term it would
    // be 450 more.
    assert_eq!(meeting.any_of, [["t02", "t03"]]);
    assert_eq!((&meeting.none_of, meeting.limit), (&vec!["t00".to_owned(), "t01".into()], 74));
    assert_eq!(alone.any_of, [["t02"]]);
    assert_eq!((alone.none_of.len(), alone.limit), (4, 33));
    assert_eq!(build_queries(&counted(&[50_000]))[0].limit, MAX_CANDIDATES);
    assert_eq!(build_queries(&counted(&[])), []);
}

fn conversation() -> impl Strategy<Value = Vec<(u8, u8, String)>> {
    let text = "((blue|kite|boat|green|Ana|sailing|may|2023|what|東京|été)[ ?]){0,12}";
    proptest::collection::vec((0..4_u8, 0..3_u8, text), 0..40)
}

fn entries(turns: &[(u8, u8, String)]) -> Vec<NewEntry> {
    let speakers = ["user", "assistant", "Ana"];
    let turn = |(key, (group, speaker, text)): (usize, &(u8, u8, String))| {
        turn(key, &format!("s{group}"), speakers[usize::from(*speaker)], text)
    };
    turns.iter().enumerate().map(turn).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn queries_are_bounded_and_valid(
        mut frequencies in proptest::collection::vec(1..100_000_u64, 0..40),
        speakers in proptest::collection::vec(1..100_000_u64, 0..17),
    ) {
        frequencies.sort_unstable();
        let mut weighted = counted(&frequencies);
        weighted.speakers = speakers.iter().enumerate().map(|(at, n)| Term { text: format!("by_{at}"), frequency: *n }).collect();
        let queries = build_queries(&weighted);
        prop_assert!(queries.len() <= MAX_QUERIES);
        prop_assert!(queries.iter().map(|query| query.limit).sum::<usize>() <= MAX_CANDIDATES);
        prop_assert_eq!(queries.is_empty(), frequencies.is_empty());
        for query in queries {
            prop_assert!(query.limit > 0 && !query.any_of.is_empty() && query.any_of.len() <= 130);
            prop_assert!(query.any_of.iter().all(|all| !all.is_empty() && all.len() <= 3));
        }
    }

    #[test]
    fn any_query_is_safe_bounded_and_deterministic(
        turns in conversation(),
        query in "(\\PC{0,120}|((blue|kite|Ana|I|may|2023|東京|\"|OR|NOT|\\*)[ ]){0,300})",
    ) {
        let index = InMemoryIndex::default();
        block_on(index.add(&collection("u"), &entries(&turns))).unwrap();
        prop_assert!(ParsedQuery::parse(&query).terms_needed().len() <= MAX_TERMS);
        let hits = ask(&index, &query);
        prop_assert!(index.rows_read.get() <= MAX_ROWS as u64);
        prop_assert!(hits.len() <= MAX_HITS);
        prop_assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
        let mut keys: Vec<&str> = hits.iter().map(|hit| hit.entry.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        prop_assert_eq!(keys.len(), hits.len(), "an entry appears twice");
        prop_assert_eq!(&ask(&index, &query), &hits);
    }

    #[test]
    fn neighbors_stay_within_their_rows(
        positions in proptest::collection::btree_set((0..3_u8, 0..400_u32), 0..MAX_CANDIDATES),
    ) {
        let text = "blue kite";
        let candidates: Vec<Entry> = (positions.iter())
            .map(|(group, position)| Entry {
                serial: 0,
                key: format!("{group}/{position}"),
                source: Source::Session,
                group: format!("s{group}"),
                session: None,
                position: *position,
                part: 0,
                at: Timestamp(0),
                speaker: None,
                text: text.into(),
                length: 2,
            })
            .collect();
        let mut weighted = counted(&[1_000]);
        weighted.terms[0].text = "blue".into();
        let places = Ranking::new(&weighted, candidates).neighbors();
        let parse = places.iter().map(|place| place.positions.len() + ROWS_PER_RUN).sum::<usize>();
        prop_assert!(parse <= NEIGHBOR_ROWS, "{parse}");
        prop_assert_eq!(places.is_empty(), positions.is_empty());
        // Ranges that a single position would join are one range.
        let apart = |pair: &[Place]| pair[0].group != pair[1].group || pair[0].positions.end + 1 < pair[1].positions.start;
        prop_assert!(places.windows(2).all(apart), "{places:?}");
    }

    /// Other collections change neither order nor scores.
    #[test]
    fn a_ranking_depends_only_on_its_own_collection(mine in conversation(), theirs in conversation()) {
        let (alone, shared) = (InMemoryIndex::default(), InMemoryIndex::default());
        block_on(alone.add(&collection("u"), &entries(&mine))).unwrap();
        block_on(shared.add(&collection("v"), &entries(&theirs))).unwrap();
        block_on(shared.add(&collection("u"), &entries(&mine))).unwrap();
        block_on(shared.add(&collection("w"), &entries(&theirs))).unwrap();
        for query in ["my blue kite", "Ana sailing in may 2023", "東京"] {
            let bare = |index| ask(index, query).into_iter().map(|hit| (hit.entry.key, hit.score)).collect::<Vec<_>>();
            prop_assert_eq!(bare(&alone), bare(&shared));
        }
    }
}
