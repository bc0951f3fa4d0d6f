package yarn

import (
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// The three protocols. Source: the ProtocolInfo annotations of the *PB interfaces in hadoop-yarn-api.
var (
	ClientProtocol     = ipc.Protocol{Name: "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB", Version: 1}
	MasterProtocol     = ipc.Protocol{Name: "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB", Version: 1}
	ManagementProtocol = ipc.Protocol{Name: "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB", Version: 1}
)

// Exception classes of YARN, to be used with errors.Is.
const (
	ErrYarn                     = ipc.Class("org.apache.hadoop.yarn.exceptions.YarnException")
	ErrApplicationNotFound      = ipc.Class("org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException")
	ErrAttemptNotFound          = ipc.Class("org.apache.hadoop.yarn.exceptions.ApplicationAttemptNotFoundException")
	ErrContainerNotFound        = ipc.Class("org.apache.hadoop.yarn.exceptions.ContainerNotFoundException")
	ErrMasterNotRegistered      = ipc.Class("org.apache.hadoop.yarn.exceptions.ApplicationMasterNotRegisteredException")
	ErrInvalidMasterRequest     = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidApplicationMasterRequestException")
	ErrInvalidResourceRequest   = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException")
	ErrInvalidBlacklistRequest  = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidResourceBlacklistRequestException")
	ErrInvalidContainerRelease  = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidContainerReleaseException")
	ErrNMNotYetReady            = ipc.Class("org.apache.hadoop.yarn.exceptions.NMNotYetReadyException")
	ErrApplicationIDNotProvided = ipc.Class("org.apache.hadoop.yarn.exceptions.ApplicationIdNotProvidedException")
	ErrInvalidLabelResource     = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidLabelResourceRequestException")
	ErrInvalidAuxiliaryService  = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidAuxServiceException")
)

// ErrInvalidContainer refuses a start: the container was granted by a ResourceManager that has restarted since, or the
// NodeManager has just started and not registered yet. Release the container and ask again; it is no failed launch.
const ErrInvalidContainer = ipc.Class("org.apache.hadoop.yarn.exceptions.InvalidContainerException")

// Container exit statuses that YARN sets itself. Source: hadoop-yarn-api ContainerExitStatus.
const (
	ExitSuccess                 int32 = 0
	ExitInvalid                 int32 = -1000
	ExitAborted                 int32 = -100 // released by the AM or lost with its node
	ExitDisksFailed             int32 = -101
	ExitPreempted               int32 = -102
	ExitKilledExceededVmem      int32 = -103
	ExitKilledExceededPmem      int32 = -104
	ExitKilledByAppMaster       int32 = -105
	ExitKilledByResourceManager int32 = -106
	ExitKilledAfterAppComplete  int32 = -107
	ExitKilledByScheduler       int32 = -108
	ExitLost                    int32 = 154 // not found any more by a NodeManager that was restarted
)
