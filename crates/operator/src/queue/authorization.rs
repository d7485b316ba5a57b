//! Authenticates a caller by its bearer token (TokenReview), and checks whether it may read or change
//! an object (SubjectAccessReview).

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};

use super::visibility::HttpError;
use flux_operator_service::error_chain::chain;

/// A caller that the API server has authenticated.
pub(super) struct Caller(UserInfo);

impl Caller {
    /// Authenticates the caller by the bearer token in these headers.
    pub(super) async fn authenticate(
        client: &Client,
        headers: &HeaderMap,
    ) -> Result<Caller, HttpError> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|shown| shown.strip_prefix("Bearer ")).unwrap_or_default();
        if token.is_empty() {
            return Err(HttpError(
                StatusCode::UNAUTHORIZED,
                "send a token of this Kubernetes cluster: Authorization: Bearer TOKEN".into(),
            ));
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(client.clone());
        let review =
            reviews.create(&PostParams::default(), &review).await.map_err(review_failed)?;
        let status = review.status.unwrap_or_default();
        match (status.authenticated, status.user) {
            (Some(true), Some(user)) => Ok(Caller(user)),
            _ => {
                let message = "the token is not valid in this Kubernetes cluster: get a new one";
                Err(HttpError(StatusCode::UNAUTHORIZED, message.into()))
            }
        }
    }

    /// Whether the caller may do this with an object of this kind.
    pub(super) async fn can<K>(
        &self,
        client: &Client,
        verb: &str,
        namespace: &str,
        name: &str,
    ) -> Result<bool, HttpError>
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
                verb: Some(verb.to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let review =
            reviews.create(&PostParams::default(), &review).await.map_err(review_failed)?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

fn review_failed(error: kube::Error) -> HttpError {
    let error = chain(&error);
    tracing::warn!(error, "failed to authenticate or authorize a caller");
    let message = "the operator cannot check your token: \
        it may lack the role for token and access reviews";
    HttpError(StatusCode::SERVICE_UNAVAILABLE, message.into())
}
