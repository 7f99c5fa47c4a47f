#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    model::{
        client::{AiModel, ErrorFormatter},
        testkit::*,
    },
    ports::{Ai, HttpError, ReadAhead},
    types::{Part, Role},
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, LocalBoxStream},
};
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;
use std::rc::Rc;

const NATIVE: &str = "data: {\"response\":\"Hel\",\"p\":\"abc\"}\n\ndata: {\"response\":\"lö \"}\n\ndata: {\"response\":7}\n\ndata: {\"response\":\"\",\"tool_calls\":[{\"name\":\"read\",\"arguments\":{\"p\":1}},{\"name\":\"list\",\"arguments\":\"{\\\"d\\\":2}\"}]}\n\ndata: {\"response\":\"\",\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":5,\"total_tokens\":9}}\n\ndata: {\"response\":null,\"tool_calls\":null,\"usage\":null,\"choices\":null}\n\ndata: [DONE]\n\n";

const OPENAI_LIKE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"Hm\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

struct FakeAi(Result<Vec<Vec<u8>>, &'static str>);

#[async_trait(?Send)]
impl Ai for FakeAi {
    async fn run(
        &self,
        model: &str,
        _: Value,
        _: ReadAhead,
    ) -> Result<LocalBoxStream<'static, Result<Bytes, HttpError>>, HttpError> {
        assert_eq!(model, "@cf/x");
        let chunks = self.0.clone().map_err(|e| HttpError(e.into()))?;
        Ok(stream::iter(chunks.into_iter().map(|c| Ok(Bytes::from(c)))).boxed_local())
    }
}

fn ask(script: Result<Vec<Vec<u8>>, &'static str>) -> Outcome {
    let errors = ErrorFormatter { provider: "workers-ai".into(), key: None };
    let model = AiModel { ai: Rc::new(FakeAi(script)), clock: Rc::new(FakeClock::default()), errors };
    call(&model, ModelRequest { model: "@cf/x".into(), ..ModelRequest::default() })
}

fn once(body: &str) -> Outcome {
    ask(Ok(vec![body.as_bytes().to_vec()]))
}

#[test]
fn native_chunks() {
    let response = once(NATIVE).end.unwrap();
    assert_eq!(
        response.parts,
        vec![
            Part::text("Hellö 7"),
            tool_call("", "read", json!({"p":1})),
            tool_call("", "list", json!({"d":2})),
        ]
    );
    assert_eq!((response.finish, response.usage.total_tokens), (FinishReason::ToolCalls, 9));
}

#[test]
fn chunks_like_openai() {
    let outcome = once(OPENAI_LIKE);
    assert_eq!((outcome.thinking.as_str(), outcome.text.as_str()), ("Hm", "Hi"));
    assert_eq!(outcome.end.unwrap().finish, FinishReason::Length);
}

#[test]
fn ends() {
    assert_eq!(once("data: {\"response\":\"Hi\"}\n\n").end.unwrap_err().kind, ModelErrorKind::Cut);
    assert_eq!(once("{\"response\":\"Hi\"}").end.unwrap().parts, [Part::text("Hi")]);
    assert_eq!(
        once("data: {\"error\":{\"code\":429}}\n\n").end.unwrap_err().kind,
        ModelErrorKind::RateLimited
    );
    let thrown = ask(Err("AiError: 3036: used up")).end.unwrap_err();
    assert_eq!(
        (thrown.kind, thrown.cause.as_deref()),
        (ModelErrorKind::Billing, Some("AiError: 3036: used up"))
    );
}

#[test]
fn the_input() {
    let request = ModelRequest {
        model: "@cf/x".into(),
        system: "S".into(),
        messages: vec![
            user("Hi"),
            message(Role::Assistant, vec![tool_call("a", "t", json!({}))]),
            result("a", "t", ok("x")),
        ],
        max_output_tokens: Some(9),
        ..ModelRequest::default()
    };
    assert_eq!(
        input(&request).unwrap(),
        json!({"stream":true,"max_tokens":9,"messages":[
            {"role":"system","content":"S"},
            {"role":"user","content":"Hi"},
            {"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"<untrusted_output>\nx\n</untrusted_output>"},
        ]})
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn chunk_boundaries_do_not_matter(cuts in proptest::collection::vec(any::<usize>(), 0..10)) {
        for body in [NATIVE, OPENAI_LIKE] {
            prop_assert_eq!(ask(Ok(cut_at(body, &cuts))), once(body));
            prop_assert_eq!(ask(Ok(bytewise(body))), once(body));
        }
    }
}

#[test]
fn forbidden_tools_are_left_out() {
    let request = |tools_off: bool| ModelRequest {
        messages: vec![user("Hi")],
        tools: vec![spec("read")].into(),
        tools_off,
        ..ModelRequest::default()
    };
    assert!(input(&request(false)).unwrap().get("tools").is_some());
    let off = input(&request(true)).unwrap();
    assert_eq!((off.get("tools"), off.get("tool_choice")), (None, None));
}
