//! Errors of AWS's services, with what to do about them.

use std::error::Error;

use anyhow::anyhow;
use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};

/// AWS's code and message, and a remedy. Neither has credentials in it.
pub fn explain<E>(error: SdkError<E>) -> anyhow::Error
where
    E: Error + ProvideErrorMetadata + 'static,
{
    match error.as_service_error() {
        Some(service) => {
            let status = error.raw_response().map(|it| it.status().as_u16());
            let status = status.map(|it| format!("HTTP status {it}"));
            let code = service.code().map(str::to_string).or(status);
            let code = code.as_deref().unwrap_or("error without a code");
            let message = service.message().unwrap_or("without a message");
            text(code, message)
        }
        None => anyhow!("cannot reach AWS: {}", chain(&error)),
    }
}

/// Whether AWS says that something does not exist.
pub fn is_missing<E: ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    let code = error.as_service_error().and_then(E::code);
    matches!(code, Some("ResourceNotFoundException"))
}

/// Whether the same request may succeed later: AWS could not be reached, or could not answer.
pub fn is_temporary<E: ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    match error {
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
        // Without a kind, it is a failure to get credentials.
        SdkError::DispatchFailure(failure) => {
            failure.is_io() || failure.is_timeout() || failure.as_other().is_some()
        }
        SdkError::ServiceError(service) => {
            is_temporary_answer(service.err().code(), service.raw().status().as_u16())
        }
        _ => false,
    }
}

/// Whether an answer with this code and status is temporary.
fn is_temporary_answer(code: Option<&str>, status: u16) -> bool {
    const TEMPORARY: [&str; 5] = [
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailableException",
        "ThrottlingException",
        "TooManyRequestsException",
    ];
    status >= 500 || status == 429 || code.is_some_and(|code| TEMPORARY.contains(&code))
}

/// An error with its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn text(code: &str, message: &str) -> anyhow::Error {
    // Lines after the first of a message may quote the request.
    let message = message.lines().next().unwrap_or_default();
    match remedy(code, message) {
        Some(remedy) => anyhow!("{code}: {message}; {remedy}"),
        None => anyhow!("{code}: {message}"),
    }
}

fn remedy(code: &str, message: &str) -> Option<&'static str> {
    let has = |part: &str| message.contains(part);
    Some(match code {
        _ if has("iam:PassRole") => {
            "your credentials need iam:PassRole for the function's role (see \"Permissions\" in \
             docs/guides/lambda-deploy.md)"
        }
        _ if has("cannot be assumed by Lambda") => {
            "the role's trust policy must allow lambda.amazonaws.com to call sts:AssumeRole; a new \
             role takes some seconds"
        }
        _ if has("execution role does not have permissions") => {
            "attach the policy AWSLambdaSQSQueueExecutionRole to the function's role"
        }
        _ if has("Function not found") => {
            "deploy it first, or check --name (deploy.name), --alias (deploy.alias) and --region"
        }
        _ if has("isibility timeout") => {
            "let the queue hide messages for six times the function's timeout (deploy.timeout): \
             aws sqs set-queue-attributes --attributes VisibilityTimeout=SECONDS"
        }
        "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" => {
            "your credentials need a policy that allows this action (see \"Permissions\" in \
             docs/guides/lambda-deploy.md)"
        }
        "ExpiredToken" | "ExpiredTokenException" => {
            "the credentials have expired; get new ones, for example with aws sso login"
        }
        "UnrecognizedClientException" | "InvalidClientTokenId" | "InvalidAccessKeyId" => {
            "AWS does not know these credentials; check --profile, AWS_PROFILE and \
             AWS_ACCESS_KEY_ID"
        }
        "InvalidSignatureException" | "SignatureDoesNotMatch" => {
            "check the secret key, and this machine's clock"
        }
        "NoSuchBucket" => "create the bucket with aws s3 mb, in the function's region",
        "PermanentRedirect" | "AuthorizationHeaderMalformed" => {
            "the bucket (deploy.bucket) must be in the function's region"
        }
        "CodeStorageExceededException" => {
            "delete versions that nothing uses with aws lambda delete-function --qualifier"
        }
        "ResourceConflictException" => "someone else changes the function; deploy again",
        "ResourceInUseException" => "AWS still changes the event source mapping; deploy again",
        "TooManyRequestsException" | "ThrottlingException" => "wait a minute, then try again",
        "PreconditionFailedException" => "another deployment has moved the alias; deploy again",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_its_remedy() {
        for (code, message, part) in [
            (
                "AccessDeniedException",
                "User: me is not authorized to perform: lambda:CreateFunction",
                "policy that allows",
            ),
            (
                "AccessDeniedException",
                "User: me is not authorized to perform: iam:PassRole on resource: role",
                "need iam:PassRole",
            ),
            (
                "InvalidParameterValueException",
                "The role defined for the function cannot be assumed by Lambda.",
                "trust policy",
            ),
            (
                "InvalidParameterValueException",
                "The provided execution role does not have permissions to call ReceiveMessage",
                "AWSLambdaSQSQueueExecutionRole",
            ),
            (
                "InvalidParameterValueException",
                "Queue visibility timeout: 30 seconds is less than Function timeout: 60 seconds",
                "six times the function's timeout",
            ),
            (
                "ResourceNotFoundException",
                "Function not found: arn:aws:lambda:eu-west-1:1:function:shop:live",
                "deploy it first",
            ),
            ("ExpiredTokenException", "expired", "aws sso login"),
            ("NoSuchBucket", "missing", "aws s3 mb"),
        ] {
            let error = text(code, message).to_string();
            assert!(error.starts_with(code) && error.contains(part), "{error}");
        }
        assert_eq!(text("Other", "first\nsecond").to_string(), "Other: first");
    }

    #[test]
    fn answer_is_temporary_unless_it_rejects_the_request() {
        for (code, status, is_temporary) in [
            (Some("ThrottlingException"), 400, true),
            (Some("ServiceUnavailableException"), 503, true),
            (None, 502, true),
            (None, 429, true),
            (Some("ExpiredTokenException"), 400, false),
            (Some("UnrecognizedClientException"), 400, false),
            (Some("AccessDeniedException"), 400, false),
            (Some("ResourceNotFoundException"), 400, false),
            (Some("InvalidParameterException"), 400, false),
        ] {
            let found = is_temporary_answer(code, status);
            assert_eq!(found, is_temporary, "{code:?} {status}");
        }
    }
}
