//! Words that occur in most queries but do not help to find anything.

/// English function words as [`super::terms`] writes them: in lower case, without apostrophes. They are
/// indexed like all other words, but left out of queries that contain other words.
const STOP_WORDS: &str = "a about above after again against all also am an and any anybody anyone anything are aren arent as \
     at be because been before being below between both but by can cannot cant could couldn couldnt did \
     didn didnt do does doesn doesnt doing dont down during each either else ever every everyone \
     everything few for from further had hadn hadnt has hasn hasnt have haven havent having he her here \
     heres hers herself hes him himself his how however hows i if im in into is isnt it its itself ive \
     just lets may me might more most much must my myself no nor not now of off on once only onto or \
     other ought our ours ourselves out over own please quite rather really same shall shan shant she \
     shes should shouldn shouldnt since so some somebody someone something still such tell than that \
     thats the their theirs them themselves then there theres these they theyd theyll theyre theyve this \
     those though through thus to together too toward towards under until up upon us very via was wasn \
     wasnt we well were weren werent weve what whats when whens where wheres whether which while who whom \
     whos whose why whys will with within without won wont would wouldn wouldnt yes yet you youd youll \
     your youre yours yourself yourselves youve";

/// Returns whether `word` is a stop word.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.split(' ').any(|stop| stop == word)
}

/// Returns whether `word` refers to the speaker of the query.
pub fn is_first_person(word: &str) -> bool {
    matches!(word, "i" | "im" | "ive" | "me" | "mine" | "my" | "myself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_words_are_sorted_and_normalized() {
        let words: Vec<&str> = STOP_WORDS.split(' ').collect();
        assert!(words.is_sorted());
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase())));
        assert!(is_stop_word("the") && is_stop_word("yourselves") && !is_stop_word("them e"));
    }
}
