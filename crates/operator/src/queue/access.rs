//! Who asks, and whether they may: a bearer token is shown to the API server, and then
//! the right to read what was asked for.

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};

use super::visibility::Refusal;
use crate::errors::chain;

/// Somebody whom the API server knows.
pub(super) struct Caller(UserInfo);

impl Caller {
    /// Who shows a token in these headers.
    pub(super) async fn of(client: &Client, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = shown.and_then(|shown| shown.strip_prefix("Bearer ")).unwrap_or_default();
        if token.is_empty() {
            return Err(Refusal(
                StatusCode::UNAUTHORIZED,
                "show a token of the cluster, as Authorization: Bearer TOKEN".into(),
            ));
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.map_err(cannot_ask)?;
        let status = review.status.unwrap_or_default();
        match (status.authenticated, status.user) {
            (Some(true), Some(user)) => Ok(Caller(user)),
            _ => {
                let message = "the cluster does not know this token: get a new one";
                Err(Refusal(StatusCode::UNAUTHORIZED, message.into()))
            }
        }
    }

    /// Whether the caller may get an object of this kind.
    pub(super) async fn may_get<K>(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Refusal>
    where
        K: Resource<DynamicType = ()>,
    {
        let Caller(user) = self;
        let spec = SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some(K::group(&()).into_owned()),
                resource: Some(K::plural(&()).into_owned()),
                verb: Some("get".into()),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.map_err(cannot_ask)?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

fn cannot_ask(error: kube::Error) -> Refusal {
    let error = chain(&error);
    tracing::warn!(error, "failed to ask the API server who a caller is");
    let message = "the operator cannot ask the cluster who you are: \
        it may lack the role for token and access reviews";
    Refusal(StatusCode::SERVICE_UNAVAILABLE, message.into())
}
