//! The page in a real browser, against the real Worker: runs `web/test` with Node.

use crate::clients::run;

#[test]
fn in_chromium() {
    run("web", "test/page.test.mjs");
}
