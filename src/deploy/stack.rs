//! Functions of a SAM or CloudFormation template, and their triggers.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::bail;

use super::document::{DocumentNode, DocumentValue};
use super::intrinsics::IntrinsicReader;
pub use super::intrinsics::Located;

#[derive(Debug, Default)]
pub struct Stack {
    pub functions: Vec<StackFunction>,
    pub queues: Vec<StackQueue>,
    pub sources: Vec<EventSourceMapping>,
    pub triggers: Vec<HttpTrigger>,
    pub schedules: Vec<StackSchedule>,
    /// `AWS::Lambda::Permission`s: function and action.
    pub permissions: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct StackFunction {
    pub name: String,
    pub line: usize,
    /// In seconds; None if only the deployment knows it.
    pub timeout: Option<Located<u64>>,
    /// In MB.
    pub memory: Option<Located<u64>>,
    pub runtime: Option<Located<String>>,
    pub is_image: bool,
    /// `_HANDLER`.
    pub handler: Option<Located<String>>,
    /// Lambda's name for it; None if only the deployment knows it.
    pub architecture: Option<Located<String>>,
    /// `CodeUri`, or the file or directory in `Code`.
    pub code: Option<Located<String>>,
    /// The deployment tool builds the zip.
    pub is_built: bool,
    /// As in the template, with any `${…}`.
    pub layers: Vec<Located<String>>,
    pub snap_start: Option<usize>,
    pub reserved: Option<Located<u64>>,
    /// Only variables with known values.
    pub environment: BTreeMap<String, String>,
}

#[derive(Debug)]
pub struct StackQueue {
    pub name: String,
    pub line: usize,
    pub visibility: Option<Located<u64>>,
    pub is_fifo: bool,
    /// The dead-letter queue's name, if it is in this template, and `maxReceiveCount`.
    pub redrive: Option<Redrive>,
}

#[derive(Debug)]
pub struct Redrive {
    pub line: usize,
    pub to: Option<String>,
    pub after: Option<Located<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    Sqs,
    Stream,
}

/// An event source mapping: records that Lambda fetches for a function.
#[derive(Debug)]
pub struct EventSourceMapping {
    pub function: String,
    pub kind: SourceKind,
    pub line: usize,
    /// A queue of this template.
    pub queue: Option<String>,
    /// According to the ARN.
    pub is_fifo: bool,
    pub batch: Option<Located<u64>>,
    /// In seconds.
    pub window: Option<Located<u64>>,
    pub reports_failures: bool,
    pub attempts: Option<Located<u64>>,
    pub concurrency: Option<Located<u64>>,
}

/// A schedule that triggers a function.
#[derive(Debug)]
pub struct StackSchedule {
    pub function: String,
    pub line: usize,
    pub has_input: bool,
    /// The text of `Input`, if the template has it.
    pub input: Option<String>,
}

/// A trigger for HTTP requests.
#[derive(Debug)]
pub struct HttpTrigger {
    pub function: String,
    pub line: usize,
    pub kind: TriggerKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriggerKind {
    Url {
        streams: bool,
        is_public: bool,
        /// SAM adds its permissions.
        by_sam: bool,
    },
    HttpApi,
    RestApi {
        takes_bytes: bool,
        streams: bool,
    },
    /// A load balancer's target group.
    Alb {
        multi_value: bool,
    },
}

/// Reads a template.
pub fn read(template: &DocumentNode) -> anyhow::Result<Stack> {
    let Some(resources) = template.get("Resources") else {
        bail!("not a SAM or CloudFormation template: it has no Resources");
    };
    let reader = IntrinsicReader { template };
    let mut stack = Stack::default();
    for (name, resource) in resources.entries() {
        let kind = resource
            .get("Type")
            .and_then(|kind| kind.text())
            .unwrap_or_default();
        let empty = Rc::new(DocumentNode {
            line: resource.line,
            tag: String::new(),
            value: DocumentValue::Map(Vec::new()),
        });
        let properties = resource.get("Properties").unwrap_or(&empty);
        match kind {
            "AWS::Serverless::Function" => {
                reader.sam_function(name, resource, properties, &mut stack)
            }
            "AWS::Lambda::Function" => {
                stack
                    .functions
                    .push(reader.function(name, resource, &[properties]))
            }
            "AWS::ElasticLoadBalancingV2::TargetGroup" => {
                reader.target_group(resource.line, properties, &mut stack)
            }
            "AWS::Events::Rule" if properties.get("ScheduleExpression").is_some() => {
                let targets = properties.get("Targets").map_or(&[][..], |it| it.items());
                for target in targets {
                    stack.schedules.push(reader.target(resource.line, target));
                }
            }
            "AWS::Scheduler::Schedule" => {
                if let Some(target) = properties.get("Target") {
                    stack.schedules.push(reader.target(resource.line, target));
                }
            }
            "AWS::SQS::Queue" => stack
                .queues
                .push(reader.queue(name, resource.line, properties)),
            "AWS::Lambda::EventSourceMapping" => {
                let function = reader.reference(properties.get("FunctionName"));
                let source = properties.get("EventSourceArn");
                let kind = if reader.is_stream(properties) {
                    SourceKind::Stream
                } else {
                    SourceKind::Sqs
                };
                stack.sources.push(reader.source(
                    function,
                    kind,
                    source,
                    resource.line,
                    properties,
                ));
            }
            "AWS::Lambda::Url" => stack.triggers.push(HttpTrigger {
                function: reader.reference(properties.get("TargetFunctionArn")),
                line: resource.line,
                kind: reader.url(properties, false),
            }),
            "AWS::Lambda::Permission" => stack.permissions.push((
                reader.reference(properties.get("FunctionName")),
                reader.text(properties.get("Action")).unwrap_or_default(),
            )),
            "AWS::ApiGatewayV2::Integration" => stack.triggers.push(HttpTrigger {
                function: reader.reference(properties.get("IntegrationUri")),
                line: resource.line,
                kind: TriggerKind::HttpApi,
            }),
            "AWS::ApiGateway::Method" => stack.triggers.push(HttpTrigger {
                function: reader.reference(
                    properties
                        .get("Integration")
                        .and_then(|integration| integration.get("Uri")),
                ),
                line: resource.line,
                kind: TriggerKind::RestApi {
                    takes_bytes: reader.some_api_takes_bytes(),
                    streams: reader
                        .text(
                            properties
                                .get("Integration")
                                .and_then(|integration| integration.get("ResponseTransferMode")),
                        )
                        .as_deref()
                        == Some("STREAM"),
                },
            }),
            _ => {}
        }
    }
    Ok(stack)
}

impl IntrinsicReader<'_> {
    fn sam_function(
        &self,
        name: &str,
        resource: &DocumentNode,
        properties: &Rc<DocumentNode>,
        stack: &mut Stack,
    ) {
        let globals = self
            .template
            .at(&["Globals", "Function"])
            .map(|node| Rc::new(node.clone()));
        let all: Vec<&Rc<DocumentNode>> = std::iter::once(properties).chain(&globals).collect();
        stack.functions.push(self.function(name, resource, &all));
        if let Some(url) = all
            .iter()
            .find_map(|properties| properties.get("FunctionUrlConfig"))
        {
            stack.triggers.push(HttpTrigger {
                function: name.into(),
                line: url.line,
                kind: self.url(url, true),
            });
        }
        for (_, event) in properties
            .get("Events")
            .map_or(&[][..], |events| events.entries())
        {
            let kind = event
                .get("Type")
                .and_then(|kind| kind.text())
                .unwrap_or_default();
            let empty = Rc::new(DocumentNode {
                line: event.line,
                tag: String::new(),
                value: DocumentValue::Map(Vec::new()),
            });
            let properties = event.get("Properties").unwrap_or(&empty);
            let trigger = |kind| HttpTrigger {
                function: name.into(),
                line: event.line,
                kind,
            };
            match kind {
                "SQS" => stack.sources.push(self.source(
                    name.into(),
                    SourceKind::Sqs,
                    properties.get("Queue"),
                    event.line,
                    properties,
                )),
                "Kinesis" | "DynamoDB" => stack.sources.push(self.source(
                    name.into(),
                    SourceKind::Stream,
                    properties.get("Stream"),
                    event.line,
                    properties,
                )),
                "HttpApi" => stack.triggers.push(trigger(TriggerKind::HttpApi)),
                "Schedule" | "ScheduleV2" => {
                    let schedule = self.schedule(name.into(), event.line, properties);
                    stack.schedules.push(schedule);
                }
                "Api" => {
                    let takes_bytes = self.some_api_takes_bytes();
                    stack.triggers.push(trigger(TriggerKind::RestApi {
                        takes_bytes,
                        streams: false,
                    }));
                }
                _ => {}
            }
        }
    }

    /// Reads a function. Of several `properties`, the first that has a key provides the value.
    fn function(
        &self,
        name: &str,
        resource: &DocumentNode,
        properties: &[&Rc<DocumentNode>],
    ) -> StackFunction {
        let line = resource.line;
        let get = |key: &str| properties.iter().find_map(|properties| properties.get(key));
        let mut environment = BTreeMap::new();
        // The function's own variables override the global ones.
        for properties in properties.iter().rev() {
            let variables = properties.at(&["Environment", "Variables"]);
            for (key, value) in variables.map_or(&[][..], |node| node.entries()) {
                if let Some(value) = self.text(Some(value)) {
                    environment.insert(key.clone(), value);
                }
            }
        }
        StackFunction {
            name: name.into(),
            line,
            timeout: self.number_or(get("Timeout"), line, 3),
            memory: self.number_or(get("MemorySize"), line, 128),
            runtime: self.located_text(get("Runtime")),
            handler: self.located_text(get("Handler")),
            architecture: match get("Architectures") {
                None => Some(Located {
                    line,
                    value: "x86_64".into(),
                }),
                Some(list) => self.located_text(list.items().first()),
            },
            code: self.located_text(get("CodeUri").or(get("Code"))),
            is_built: resource.at(&["Metadata", "BuildMethod"]).is_some(),
            layers: layers(properties),
            is_image: self.text(get("PackageType")).as_deref() == Some("Image"),
            snap_start: get("SnapStart").map(|node| node.line),
            reserved: self.number(get("ReservedConcurrentExecutions")),
            environment,
        }
    }

    /// A string with its line.
    fn located_text(&self, node: Option<&Rc<DocumentNode>>) -> Option<Located<String>> {
        let value = self.text(node)?;
        Some(Located {
            line: node?.line,
            value,
        })
    }

    /// A schedule whose input these properties name.
    fn schedule(
        &self,
        function: String,
        line: usize,
        properties: &Rc<DocumentNode>,
    ) -> StackSchedule {
        StackSchedule {
            function,
            line,
            has_input: has_input(properties),
            input: self.text(properties.get("Input")),
        }
    }

    /// A schedule that invokes this target.
    fn target(&self, line: usize, target: &Rc<DocumentNode>) -> StackSchedule {
        self.schedule(self.reference(target.get("Arn")), line, target)
    }

    /// The functions in a load balancer's target group.
    fn target_group(&self, line: usize, properties: &Rc<DocumentNode>, stack: &mut Stack) {
        if self.text(properties.get("TargetType")).as_deref() != Some("lambda") {
            return;
        }
        let items = |name: &str| properties.get(name).map_or(&[][..], |it| it.items());
        let multi_value = items("TargetGroupAttributes").iter().any(|attribute| {
            let is = |name: &str, wanted: &str| {
                self.text(attribute.get(name)).as_deref() == Some(wanted)
            };
            is("Key", "lambda.multi_value_headers.enabled") && !is("Value", "false")
        });
        for target in items("Targets") {
            stack.triggers.push(HttpTrigger {
                function: self.reference(target.get("Id")),
                line,
                kind: TriggerKind::Alb { multi_value },
            });
        }
    }

    fn queue(&self, name: &str, line: usize, properties: &Rc<DocumentNode>) -> StackQueue {
        let named_fifo = self
            .text(properties.get("QueueName"))
            .is_some_and(|name| name.ends_with(".fifo"));
        StackQueue {
            name: name.into(),
            line,
            visibility: self.number_or(properties.get("VisibilityTimeout"), line, 30),
            is_fifo: named_fifo
                || self.text(properties.get("FifoQueue")).as_deref() == Some("true"),
            redrive: properties.get("RedrivePolicy").map(|policy| Redrive {
                line: policy.line,
                to: Some(self.reference(policy.get("deadLetterTargetArn")))
                    .filter(|name| !name.is_empty()),
                after: self.number(policy.get("maxReceiveCount")),
            }),
        }
    }

    fn source(
        &self,
        function: String,
        kind: SourceKind,
        from: Option<&Rc<DocumentNode>>,
        line: usize,
        properties: &Rc<DocumentNode>,
    ) -> EventSourceMapping {
        let types = properties
            .get("FunctionResponseTypes")
            .map_or(&[][..], |types| types.items());
        let scaling = properties.get("ScalingConfig");
        EventSourceMapping {
            function,
            kind,
            line,
            queue: Some(self.reference(from)).filter(|name| !name.is_empty()),
            is_fifo: self.text(from).is_some_and(|arn| arn.ends_with(".fifo")),
            batch: self.number(properties.get("BatchSize")),
            window: self.number(properties.get("MaximumBatchingWindowInSeconds")),
            reports_failures: types
                .iter()
                .any(|node| node.text() == Some("ReportBatchItemFailures")),
            attempts: self.number(properties.get("MaximumRetryAttempts")),
            concurrency: scaling.and_then(|scaling| self.number(scaling.get("MaximumConcurrency"))),
        }
    }

    fn url(&self, properties: &DocumentNode, by_sam: bool) -> TriggerKind {
        TriggerKind::Url {
            streams: self.text(properties.get("InvokeMode")).as_deref() == Some("RESPONSE_STREAM"),
            is_public: self.text(properties.get("AuthType")).as_deref() == Some("NONE"),
            by_sam,
        }
    }

    /// Whether the source is a stream: only streams have a starting position.
    fn is_stream(&self, properties: &DocumentNode) -> bool {
        properties.get("StartingPosition").is_some()
    }

    /// Whether any REST API of the template passes binary bodies on.
    fn some_api_takes_bytes(&self) -> bool {
        let resources = self
            .template
            .get("Resources")
            .map_or(&[][..], |resources| resources.entries());
        let of_resources = resources
            .iter()
            .any(|(_, resource)| resource.at(&["Properties", "BinaryMediaTypes"]).is_some());
        of_resources
            || self
                .template
                .at(&["Globals", "Api", "BinaryMediaTypes"])
                .is_some()
    }
}

/// Whether a schedule sends an input of its own.
fn has_input(properties: &DocumentNode) -> bool {
    ["Input", "InputPath", "InputTransformer"]
        .iter()
        .any(|name| properties.get(name).is_some())
}

/// The layers of all functions and of this one.
fn layers(properties: &[&Rc<DocumentNode>]) -> Vec<Located<String>> {
    let lists = properties.iter().filter_map(|it| it.get("Layers"));
    let layers = lists.flat_map(|list| list.items()).filter_map(|layer| {
        // Values that `Fn::Sub` inserts do not change which layer it is.
        let text = match (&layer.value, layer.get("Fn::Sub")) {
            (DocumentValue::Text(text), _) => text,
            (_, Some(sub)) => sub.text()?,
            _ => return None,
        };
        Some(Located {
            line: layer.line,
            value: text.to_string(),
        })
    });
    layers.collect()
}
