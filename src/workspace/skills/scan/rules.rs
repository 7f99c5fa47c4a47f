//! The rules of the scanner. Each is a regular expression over the whole text of a file, in which `.` and `[^\n]` stay
//! within a command.

use super::Danger::{self, Erasure, Injection, ReverseShell, RunsDownload, Secret};

/// A text that is dangerous.
pub struct Rule {
    /// Why.
    pub danger: Danger,
    /// What it looks like.
    pub pattern: &'static str,
    /// Whether capitals make no difference.
    pub ignores_case: bool,
}

const fn command(danger: Danger, pattern: &'static str) -> Rule {
    Rule { danger, pattern, ignores_case: true }
}

const fn secret(pattern: &'static str) -> Rule {
    Rule { danger: Secret, pattern, ignores_case: false }
}

/// All rules.
pub const RULES: &[Rule] = &[
    // curl … | bash, also through other commands, and for interpreters.
    command(
        RunsDownload,
        r"\b(curl|wget|fetch|iwr|irm|invoke-webrequest|invoke-restmethod)\s[^\n]*\|\s*(sudo\s+(-\S+\s+)*)?(/?usr/bin/|/bin/)?(env\s+)?((ba|z|da|k|c|tc|fi|a)?sh|python[0-9.]*|perl|ruby|node|php|pwsh|powershell|iex|invoke-expression)\b",
    ),
    // bash <(curl …), sh -c "$(wget …)", eval `curl …`
    command(
        RunsDownload,
        r#"\b((ba|z|da|k|a)?sh|eval|source|iex|invoke-expression)\s[^\n]*(<\(|\$\(|`|\(\s*)\s*(curl|wget|iwr|irm|invoke-webrequest|new-object\s+net\.webclient)\b"#,
    ),
    command(
        RunsDownload,
        r"\bbase64\s+(-d|-D|--decode)\b[^\n]*\|\s*(sudo\s+)?((ba|z|da|k|a)?sh|python[0-9.]*|perl)\b",
    ),
    command(RunsDownload, r"\b(exec|eval)\s*\(\s*(requests\.get|urllib\.request\.urlopen|urlopen|fetch)\b"),
    command(ReverseShell, r"/dev/(tcp|udp)/[^\s/]+/[0-9$]"),
    command(
        ReverseShell,
        r"\bn(c|cat|etcat)(\.[a-z]+)?\s([^\n]*\s)?(-[a-z]*[ec]|--exec|--sh-exec)[\s=]+\S*(sh|cmd|cmd\.exe|powershell)\b",
    ),
    command(ReverseShell, r"\bmkfifo\s[^\n]*\bn(c|cat|etcat)\s"),
    command(ReverseShell, r"\bsocat\s[^\n]*\b(exec|system):"),
    command(ReverseShell, r"\bos\.dup2\s*\(\s*\w+\.fileno\s*\("),
    // rm -rf /, rm -r ~, rm --recursive "$HOME", with further flags before and after.
    command(
        Erasure,
        r#"\brm\s+(-\S+\s+)*(-[a-z]*r[a-z]*|--recursive)\s+([^\n;&|]*\s)?["']?(/|~|\$\{?home\}?|/(home|root|etc|usr|var|bin|sbin|lib|boot|opt|srv|dev|sys|proc|users))["']?(/|/?\*)?["']?[\s;&|)`]"#,
    ),
    command(
        Erasure,
        r#"\brm\s+([^\n;&|]*\s)?["']?(/|~|\$\{?home\}?)["']?(/|/?\*)?["']?\s([^\n;&|]*\s)?(-[a-z]*r[a-z]*|--recursive)[\s;&|)`]"#,
    ),
    command(Erasure, r"\brm\s[^\n]*--no-preserve-root\b"),
    command(Erasure, r#"\bfind\s+["']?(/|~|\$\{?home\}?)["']?/?\s[^\n]*(-delete|-exec\s+rm)\b"#),
    command(
        Erasure,
        r"\bmkfs(\.[a-z0-9]+)?\s[^\n]*/dev/|\bdd\s[^\n]*\bof=/dev/(sd|hd|vd|xvd|nvme|disk|mmcblk)",
    ),
    command(Erasure, r":\(\)\s*\{\s*:\s*\|\s*:\s*&\s*\}"),
    command(
        Erasure,
        r#"\brmtree\s*\(\s*(os\.path\.expanduser\s*\(\s*|path\.home\s*\(|path\s*\(\s*)?["']?(/|~/?)?["']?\s*\)"#,
    ),
    command(
        Erasure,
        r"\b(rd|rmdir|del)\s+(/[a-z]\s+)*/s\s+(/[a-z]\s+)*[a-z]:\\[\s*]|\bremove-item\s[^\n]*-recurse[^\n]*\s[a-z]:\\[\s*]",
    ),
    command(
        Injection,
        r"\b(ignore|disregard|forget|override|bypass)\s+((all|any|of|the|your|my|these|those|every|other)\s+)*(previous|prior|earlier|above|preceding|existing|system|original|operator'?s?)\s+(instruction|prompt|rule|message|guideline|directive|policy|policies|context)",
    ),
    command(
        Injection,
        r"\b(ignore|disregard|forget|override|bypass)\s+(all\s+)?(of\s+)?your\s+(\w+\s+)?(instruction|rule|guideline|directive|policies|restriction|training)",
    ),
    command(
        Injection,
        r"\b(reveal|print|show|output|repeat|leak|send)\s+(me\s+|us\s+)?(your|the)\s+(system|hidden|initial|developer)\s+(prompt|instructions|message)",
    ),
    command(
        Injection,
        r"\byou\s+are\s+(now|no\s+longer)\s+(in\s+)?(an?\s+)?(dan\b|unrestricted|unfiltered|jailbroken|developer\s+mode|bound\s+by)",
    ),
    command(
        Injection,
        r"\b(do\s+not|don't|never)\s+(tell|inform|alert|notify|ask)\s+the\s+(user|operator|human|owner)\b",
    ),
    command(Injection, r"<\s*/?\s*(system|untrusted[_-]output|available_skills|loaded_context)\s*>"),
    secret(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"),
    // OpenAI and Anthropic, Stripe, and this server.
    secret(r"\bsk-[A-Za-z0-9_-]{20}|\b[srp]k_live_[0-9A-Za-z]{16}|\beh_[A-Za-z0-9_-]{43}"),
    // AWS, Google.
    secret(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}"),
    // GitHub, GitLab, npm, Hugging Face, Slack.
    secret(r"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{22}|\bglpat-[A-Za-z0-9_-]{20}"),
    secret(r"\bnpm_[A-Za-z0-9]{36}|\bhf_[A-Za-z0-9]{30}|\bxox[abprs]-[A-Za-z0-9-]{10}"),
    // Signed tokens.
    secret(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10}"),
];
