//! `node_classes[].upstream_node`: RLY-15.

use super::*;
use sluice_engine::class::{NodeTemplate, TemplateText, UpstreamNode};

fn upstream_node(rule: &str) -> UpstreamNode {
    let loaded = with_server(&format!("node_classes: [{{{rule}}}]"));
    loaded.node_classes.rules[0].upstream_node.clone()
}

fn errors(rule: &str) -> Vec<String> {
    let text = format!("{SERVER}node_classes: [{{{rule}}}]");
    messages(&read(&text).expect_err(&text))
}

#[test]
fn rly_15_a_server_is_told_the_projection_unless_the_operator_says_otherwise() {
    assert_eq!(upstream_node("split_by: {}"), UpstreamNode::Projection);
    assert_eq!(upstream_node("split_by: {}, upstream_node: projection"), UpstreamNode::Projection);
    assert_eq!(upstream_node("split_by: {}, upstream_node: member"), UpstreamNode::Member);
    let id = TemplateText::parse("router~{class}~{node.metadata.NAMESPACE}").unwrap();
    let template = NodeTemplate { id: Some(id), ..NodeTemplate::default() };
    assert_eq!(
        upstream_node(
            "split_by: {metadata: [NAMESPACE]}, \
             upstream_node: {template: {id: 'router~{class}~{node.metadata.NAMESPACE}'}}"
        ),
        UpstreamNode::Template(template.into())
    );
}

#[test]
fn what_a_template_cannot_have_is_named_with_its_key() {
    let at = "node_classes[0].upstream_node";
    assert_eq!(
        errors("split_by: {cluster: true}, upstream_node: {template: {id: 'a~{node.metadata.NAMESPACE}'}}"),
        [format!(
            "{at}: `template.id` uses {{node.metadata.NAMESPACE}}, but `split_by` does not split classes by this field"
        )]
    );
    assert_eq!(
        errors("upstream_node: {template: {metadata: {A: {B: ['{node.cluster}']}}}}"),
        [format!(
            "{at}: `template.metadata.A.B[0]` uses {{node.cluster}}, but `split_by` does not split classes by this field"
        )],
        "the names of the other style are split by nothing"
    );
    let only = |error: &str| errors(&format!("split_by: {{}}, upstream_node: {error}")).concat();
    assert!(only("{template: {id: '{node.ip}'}}").starts_with(&format!("{at}.template.id: ")));
    assert!(only("{template: {metadata: {A: '{'}}}").starts_with(&format!("{at}.template.metadata: ")));
    assert!(only("{template: {}}").contains("at least one of `id`, `cluster` and `metadata`"));

    assert!(only("somebody").contains("expected projection, member or {template: {…}}"));
    assert!(only("{}").starts_with(&format!("{at}.template: ")));
}
