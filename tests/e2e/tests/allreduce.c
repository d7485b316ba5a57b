/* Adds up the ranks of all processes; the first one prints the sum. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* MPI_Finalize of MPICH before 4.2 with UCX hangs where two processes have not agreed on their
 * connection yet: one waits for the other, which waits in PMI (pmodels/mpich#6596). Agreeing
 * takes some messages of UCX's own, which are answered while ours are exchanged. */
static void talk_to_all(int size)
{
    int out = 0, *in = calloc(size, sizeof *in);
    MPI_Request *requests = calloc(2 * size, sizeof *requests);
    for (int round = 0; round < 1000; round++) {
        for (int peer = 0; peer < size; peer++) {
            MPI_Isend(&out, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, &requests[2 * peer]);
            MPI_Irecv(&in[peer], 1, MPI_INT, peer, 0, MPI_COMM_WORLD, &requests[2 * peer + 1]);
        }
        MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    }
    free(requests);
    free(in);
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum of %d ranks: %d\n", size, sum);
    talk_to_all(size);
    MPI_Finalize();
    return 0;
}
