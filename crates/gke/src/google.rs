//! Google's API, one function for each method that is used.

use flux_operator_wire::GkeFailure;
use google_cloud_container_v1::client::ClusterManager;
use google_cloud_container_v1::model::operation::Status as OperationStatus;
use google_cloud_container_v1::model::{Cluster, Operation};
use google_cloud_gax::retry_policy::NeverRetry;

use crate::cluster::NODE_POOL;
use crate::settings::Settings;
use crate::token::Tokens;
use crate::trouble::{Failure, Trouble, chain, short};

/// A client of Google's API for one project and zone.
pub struct Google {
    clusters: ClusterManager,
    pub(crate) tokens: Tokens,
    /// `projects/…/locations/…`.
    parent: String,
}

impl Google {
    /// A client, with the credentials of the settings.
    pub async fn of(settings: &Settings) -> Result<Google, Failure> {
        crate::use_ring();
        let tokens = Tokens::of(settings)?;
        // Whatever fails leads back to the question at the start: what Google's client does again by
        // itself would only hide that.
        let mut builder = ClusterManager::builder()
            .with_credentials(tokens.for_client())
            .with_retry_policy(NeverRetry)
            .with_attempt_timeout(std::time::Duration::from_secs(60));
        if let Some(endpoint) = &settings.places.api {
            builder = builder.with_endpoint(endpoint);
        }
        let clusters = builder.build().await;
        let clusters =
            clusters.map_err(|error| Failure::new(GkeFailure::Settings, chain(&error)))?;
        let target = &settings.target;
        let parent = format!("projects/{}/locations/{}", target.project, target.location);
        Ok(Google { clusters, tokens, parent })
    }

    fn name(&self, cluster: &str) -> String {
        format!("{}/clusters/{cluster}", self.parent)
    }

    /// A cluster, if there is one of this name.
    pub(crate) async fn cluster(&self, name: &str) -> Result<Option<Cluster>, Trouble> {
        match self.clusters.get_cluster().set_name(self.name(name)).send().await {
            Ok(cluster) => Ok(Some(cluster)),
            Err(error) if error.http_status_code() == Some(404) => Ok(None),
            Err(error) => Err(Trouble::of_google("get the cluster", &error)),
        }
    }

    /// Begins to create a cluster.
    pub(crate) async fn create(&self, cluster: Cluster) -> Result<Operation, Trouble> {
        let request = self.clusters.create_cluster().set_parent(&self.parent).set_cluster(cluster);
        request.send().await.map_err(|error| match error.http_status_code() {
            // The answer to an earlier request was lost.
            Some(409) => Trouble::Passing("the cluster exists already".to_owned()),
            _ => Trouble::of_google("create the cluster", &error),
        })
    }

    /// Begins to change the size of its node pool.
    pub(crate) async fn resize(&self, name: &str, nodes: i32) -> Result<Operation, Trouble> {
        let pool = format!("{}/nodePools/{NODE_POOL}", self.name(name));
        let request = self.clusters.set_node_pool_size().set_name(pool).set_node_count(nodes);
        request.send().await.map_err(|error| Trouble::of_google("resize the node pool", &error))
    }

    /// Begins to delete a cluster.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Trouble> {
        match self.clusters.delete_cluster().set_name(self.name(name)).send().await {
            Ok(_operation) => Ok(()),
            Err(error) if error.http_status_code() == Some(404) => Ok(()),
            Err(error) => Err(Trouble::of_google("delete the cluster", &error)),
        }
    }

    /// Whether an operation is done. Fails if it has failed.
    pub(crate) async fn is_done(&self, operation: &str) -> Result<bool, Trouble> {
        let name = format!("{}/operations/{operation}", self.parent);
        let operation = self.clusters.get_operation().set_name(name).send().await;
        let operation =
            operation.map_err(|error| Trouble::of_google("get the operation", &error))?;
        match &operation.error {
            None => Ok(operation.status == OperationStatus::Done),
            Some(error) => {
                let kind = match error.code {
                    RESOURCE_EXHAUSTED => GkeFailure::Quota,
                    PERMISSION_DENIED => GkeFailure::Permission,
                    INVALID_ARGUMENT => GkeFailure::Settings,
                    _ => GkeFailure::Broken,
                };
                Err(Trouble::fail(kind, short(&error.message)))
            }
        }
    }

    /// All clusters.
    pub(crate) async fn all(&self) -> Result<Vec<Cluster>, Trouble> {
        let answer = self.clusters.list_clusters().set_parent(&self.parent).send().await;
        let answer = answer.map_err(|error| Trouble::of_google("list clusters", &error))?;
        Ok(answer.clusters)
    }
}

/// Codes of `google.rpc.Code`.
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
